"""A whole encoder with fused half-blocks beside a plain one, and how tiles are chosen."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from alewm.errors import InputError
from alewm.model.fused.blocks import FUSED_HALVES, fuse_blocks
from alewm.model.fused.tiles import CANDIDATES, Tile, fastest, fitting, tile_from, tile_of, timed, use_tile
from alewm.model.fused.trials import mlp_trials, time_tiles
from alewm.model.vit import ViT, ViTConfig

CPU = torch.device("cpu")
SMALL = ViTConfig(image_size=16, patch_size=8, hidden_dim=32, num_blocks=3, num_heads=2, mlp_dim=32)


def encoder() -> ViT:
    vit = ViT(SMALL)
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return vit


def computed(vit, images):
    features = vit(images)
    names, parameters = zip(*vit.named_parameters(), strict=True)
    gradients = torch.autograd.grad(features.sin().sum(), parameters)
    return features.detach(), dict(zip(names, gradients, strict=True))


def assert_equal_up_to_rounding(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
    for name, gradient in expected[1].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_an_encoder_computes_the_same_with_fused_blocks():
    vit, images = encoder(), torch.randn(3, 16, 16, 3)
    expected, names = computed(vit, images), list(vit.state_dict())
    fuse_blocks(vit, "mlp")
    assert list(vit.state_dict()) == names
    assert_equal_up_to_rounding(computed(vit, images), expected)


def test_fused_blocks_compile_without_a_break_and_once_for_all():
    """In a process of its own: shape annotations, which tests enforce, are no part of what is compiled."""
    script = Path(__file__).parent / "compiled_blocks.py"
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["difference"] < 1e-5
    # One program for the blocks that give every token, and one for the last block.
    assert found["num_programs"] == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_products_that_the_kernels_cannot_compute_here_are_the_plain_ones(dtype):
    block, x = encoder().blocks[0].to(dtype), torch.randn(2, 5, 32, dtype=dtype)
    plain = block(x)
    block.halves = FUSED_HALVES["mlp"]
    assert torch.equal(block(x), plain)


def test_the_fastest_tile_that_runs_is_taken_and_the_others_are_told_why_not():
    few = list(mlp_trials(4, 32, 16, torch.float32, CPU))
    tile = Tile(rows=16, chunk=16, warps=1, stages=1)
    found = time_tiles(few, 32, {"widen": (tile,)}, CPU, repeats=1)
    assert {kernel for kernel, _ in found} == {"widen", "narrow_backward"}
    times = {key: time for key, time in found.items() if key[0] == "widen"}
    assert tile_of("widen", 32, 16) == fastest(times)[1]

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
    assert tile_from("128,64,8,2,3") == Tile(128, 64, 8, 2, parts=3)
    assert fitting([tile, Tile(64, 64, 4, 2), Tile(64, 32, 4, 2, parts=2)], 96) == [tile]
    assert fitting([Tile(64, 32, 4, 3, parts=2)], 48) == [Tile(64, 16, 4, 3)]
    use_tile("widen", 8, 8, tile)
    assert tile_of("widen", 8, 8) == tile
    with pytest.raises(InputError, match=r"rows,chunk,warps,stages,parts, for example 128,64,8,2,1; got '64,32'"):
        tile_from("64,32")
    with pytest.raises(InputError, match="The chunk of a tile must be a power of two, got 48"):
        tile_from("64,48,4,2")
    with pytest.raises(InputError, match="The parts of a tile must be at least 1, got 0"):
        tile_from("64,32,4,2,0")


@pytest.mark.parametrize("kernel", ["widen", "narrow_backward"])
def test_all_candidates_fit_the_hidden_layer_of_vit_tiny(kernel):
    assert fitting(CANDIDATES[kernel], 768) == list(CANDIDATES[kernel])
