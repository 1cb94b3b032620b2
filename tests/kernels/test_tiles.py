"""How kernels cut their work, and how that is timed."""

import pytest
import torch

from alewm.errors import InputError
from alewm.kernels.tiles import CANDIDATES, Tile, fitting, tile_of
from alewm_lab.benchmarks.encoder_kernels import (
    attention_trials,
    fastest,
    mlp_trials,
    residual_trials,
    tile_from,
    time_tiles,
    timed,
)

CPU = torch.device("cpu")


def test_every_kernel_is_timed_with_every_tile_that_fits():
    tile = Tile(rows=16, chunk=16, warps=1, stages=1)
    trials = [*mlp_trials(4, 32, 16, torch.float32, CPU), *attention_trials(1, 65, 64, 1, torch.float32, CPU)]
    trials += residual_trials(4, 32, torch.float32, CPU)
    found = time_tiles(trials, {"widen": (tile,)}, CPU, repeats=1)
    assert {kernel for kernel, _ in found} == set(CANDIDATES)
    assert ("widen", tile) in found
    assert all(isinstance(time, float) for time in found.values())


def test_a_tile_that_does_not_fit_on_the_chip_is_told_and_not_taken():
    def runs_out():
        from triton.runtime.errors import OutOfResources

        raise OutOfResources(300_000, 232_448, "shared memory")

    found = timed({"large": runs_out, "small": lambda: None}, CPU, repeats=1)
    assert "shared memory" in found["large"]
    assert fastest(found) == "small"
    assert fastest({"large": found["large"]}) is None


def test_tiles_are_written_and_read_and_fit_their_matrix():
    tile = Tile(64, 32, 4, 3)
    assert tile_from(str(tile)) == tile_from("64,32,4,3") == tile
    assert tile_from("128,64,8,3,2") == Tile(128, 64, 8, 3, resident=2)
    assert fitting([tile, Tile(64, 64, 4, 2)], 96) == [tile]
    assert fitting([Tile(64, 32, 4, 3)], 48) == [Tile(64, 16, 4, 3)]
    with pytest.raises(InputError, match=r"rows,chunk,warps,stages,resident, for example 128,64,8,2,0; got '64,32'"):
        tile_from("64,32")
    with pytest.raises(InputError, match="The chunk of a tile must be a power of two, got 48"):
        tile_from("64,48,4,2")
    with pytest.raises(InputError, match="The stages of a tile must be at least 1, got 0"):
        tile_from("64,32,4,0")


def test_weights_stay_on_the_chip_where_they_can():
    for kernel in ("widen", "narrow_backward"):
        assert tile_of(kernel, 768, resident=True) == CANDIDATES[kernel][0]
        assert not tile_of(kernel, 768).resident
        assert tile_of(kernel, 768) in CANDIDATES[kernel]


@pytest.mark.parametrize("kernel", CANDIDATES)
def test_all_candidates_fit_vit_tiny(kernel):
    columns = 768 if kernel in ("widen", "narrow_backward") else 256
    assert fitting(CANDIDATES[kernel], columns) == list(CANDIDATES[kernel])
