"""Every kernel on random rows, to choose its tile by time and to measure what it achieves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch

from alewm.model.fused.attention import run_project, run_project_backward, run_qkv, run_qkv_backward
from alewm.model.fused.mlp import run_backward, run_forward
from alewm.model.fused.tiles import CANDIDATES, Call, Tile, as_it_is, fastest, fitting, timed, use_tile

_ROWS_TIMED = 65_536
"""Enough to fill any GPU several times over."""
_EPS = 1e-12


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


def choose_tiles(
    which: Literal["mlp", "both"], width: int, hidden: int, dtype: torch.dtype, device: torch.device
) -> None:
    """Time the candidates of every kernel that `which` needs, and take the fastest from now on.

    The interpreter of Triton, on a CPU, gains nothing from it and would take hours.
    """
    if device.type != "cuda":
        return
    needed = {"mlp": ("mlp",), "both": ("mlp", "qkv", "project")}[which]
    chosen = [trial for trial in trials(_ROWS_TIMED, width, hidden, dtype, device) if trial.kernel.startswith(needed)]
    time_tiles(chosen, width, {}, device)


def time_tiles(
    chosen: Sequence[Trial],
    width: int,
    more: Mapping[str, Sequence[Tile]],
    device: torch.device,
    repeats: int = 10,
    recorded: Callable[[Call, torch.device], Call] = as_it_is,
) -> dict[tuple[str, Tile], float | str]:
    """Milliseconds of each kernel with each of its candidates and of `more`; the fastest are taken from now on."""
    calls: dict[tuple[str, Tile], Callable[[], object]] = {}
    for trial in chosen:
        for tile in fitting((*CANDIDATES[trial.kernel], *more.get(trial.kernel, ())), trial.columns):
            calls[trial.kernel, tile] = partial(trial.call, tile)
    found = timed(calls, device, repeats, recorded)
    for trial in chosen:
        best = fastest({tile: time for (kernel, tile), time in found.items() if kernel == trial.kernel})
        if best is not None:
            use_tile(trial.kernel, width, trial.columns, best)
    return found


def trials(num_rows: int, width: int, hidden: int, dtype: torch.dtype, device: torch.device) -> Iterator[Trial]:
    """All kernels, one after the other."""
    generator = torch.Generator(device).manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    x, grad_y = draw(num_rows, width), draw(num_rows, width)
    scale, shift, b1, b2, b3 = 1 + draw(width), draw(width), draw(hidden), draw(width), draw(3 * width)
    norm, products = num_rows * width, 2 * num_rows * width
    w1, w2 = (draw(*shape).mul(0.05).to(dtype) for shape in ((hidden, width), (width, hidden)))
    yield Trial(
        "mlp_forward",
        hidden,
        lambda tile: run_forward(x, scale, shift, w1, b1, w2, b2, _EPS, tile),
        8 * norm,
        2 * products * hidden,
    )
    yield Trial(
        "mlp_backward",
        hidden,
        lambda tile: run_backward(grad_y, x, scale, shift, w1, b1, w2, _EPS, tile),
        (12 + 2 * dtype.itemsize) * norm + 2 * dtype.itemsize * num_rows * hidden,
        3 * products * hidden,
    )
    stacked, w = (draw(rows, width).mul(0.05).to(dtype) for rows in (3 * width, width))
    rounded = grad_y.to(dtype)
    yield Trial(
        "qkv_forward",
        width,
        lambda tile: run_qkv(x, scale, shift, stacked, b3, _EPS, tile),
        (8 + 3 * dtype.itemsize) * norm,
        3 * products * width,
    )
    yield Trial(
        "qkv_backward",
        width,
        lambda tile: run_qkv_backward(rounded, rounded, rounded, grad_y, x, scale, shift, stacked, _EPS, tile),
        (12 + 4 * dtype.itemsize) * norm,
        3 * products * width,
    )
    yield Trial(
        "project_forward",
        width,
        lambda tile: run_project(rounded, w, b2, x, tile),
        (8 + dtype.itemsize) * norm,
        products * width,
    )
    yield Trial(
        "project_backward",
        width,
        lambda tile: run_project_backward(grad_y, w, tile),
        (4 + 2 * dtype.itemsize) * norm,
        products * width,
    )
