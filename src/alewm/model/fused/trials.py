"""Every kernel on random rows, to choose its tile by time and to measure what it achieves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch

from alewm.model.fused.mlp import run_narrow_backward, run_widen
from alewm.model.fused.tiles import CANDIDATES, Tile, fastest, fitting, timed, use_tile

_ROWS_TIMED = 65_536
"""Enough to fill any GPU several times over."""


class Trial(NamedTuple):
    """A kernel with something to compute."""

    kernel: str
    columns: int
    """Of the matrix whose chunks a tile takes."""
    call: Callable[[Tile], object]
    num_bytes: int
    """Read and written at least, without weights."""
    num_operations: int
    """Multiplications and additions of the products."""


def choose_mlp_tiles(width: int, hidden: int, dtype: torch.dtype, device: torch.device) -> None:
    """Time the candidates of both kernels of an MLP, and take the fastest from now on.

    The interpreter of Triton, on a CPU, gains nothing from it and would take hours.
    """
    if device.type == "cuda":
        time_tiles(list(mlp_trials(_ROWS_TIMED, width, hidden, dtype, device)), width, {}, device)


def time_tiles(
    chosen: Sequence[Trial], width: int, more: Mapping[str, Sequence[Tile]], device: torch.device, repeats: int = 10
) -> dict[tuple[str, Tile], float | str]:
    """Milliseconds of each kernel with each of its candidates and of `more`; the fastest are taken from now on."""
    calls: dict[tuple[str, Tile], Callable[[], object]] = {}
    for trial in chosen:
        for tile in fitting((*CANDIDATES[trial.kernel], *more.get(trial.kernel, ())), trial.columns):
            calls[trial.kernel, tile] = partial(trial.call, tile)
    found = timed(calls, device, repeats)
    for trial in chosen:
        best = fastest({tile: time for (kernel, tile), time in found.items() if kernel == trial.kernel})
        if best is not None:
            use_tile(trial.kernel, width, trial.columns, best)
    return found


def mlp_trials(num_rows: int, width: int, hidden: int, dtype: torch.dtype, device: torch.device) -> Iterator[Trial]:
    """The kernels of an MLP, one after the other."""
    generator = torch.Generator(device).manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    x, w1, w2 = draw(num_rows, width).to(dtype), draw(hidden, width).to(dtype), draw(width, hidden).to(dtype)
    b1, h = draw(hidden), draw(num_rows, hidden).to(dtype)
    # Each reads narrow rows and reads or writes two matrices of wide ones.
    num_bytes, num_operations = dtype.itemsize * num_rows * (width + 2 * hidden), 2 * num_rows * width * hidden
    yield Trial("widen", hidden, lambda tile: run_widen(x, w1, b1, tile), num_bytes, num_operations)
    yield Trial("narrow_backward", hidden, lambda tile: run_narrow_backward(x, w2, h, tile), num_bytes, num_operations)
