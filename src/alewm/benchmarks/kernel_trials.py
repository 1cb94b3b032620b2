"""Every fused kernel on random rows with each of its tiles, to measure what it achieves."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from alewm.benchmarks.timing import check_repeats
from alewm.errors import InputError
from alewm.model.fused.add_norm import run_add_norm, run_add_norm_backward
from alewm.model.fused.image_attention import run_attention, run_attention_backward, run_first_token_backward
from alewm.model.fused.mlp_launches import run_narrow_backward, run_widen
from alewm.model.fused.tiles import CANDIDATES, Tile, fitting
from alewm.model.vit import LAYER_NORM_EPS


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


def time_tiles(
    trials: Sequence[Trial], more: Mapping[str, Sequence[Tile]], device: torch.device, repeats: int
) -> dict[tuple[str, Tile], float | str]:
    """Milliseconds of each kernel with each of its candidates and of `more`, or why the device could not run it."""
    calls: dict[tuple[str, Tile], Callable[[], object]] = {}
    for trial in trials:
        for tile in fitting((*CANDIDATES[trial.kernel], *more.get(trial.kernel, ())), trial.columns):
            calls[trial.kernel, tile] = partial(trial.call, tile)
    return timed(calls, device, repeats)


def mlp_trials(num_rows: int, width: int, hidden: int, dtype: torch.dtype, device: torch.device) -> Iterator[Trial]:
    """The kernels of an MLP, one after the other."""
    draw = _Draws(device)
    x, w1, w2 = draw(num_rows, width).to(dtype), draw(hidden, width).to(dtype), draw(width, hidden).to(dtype)
    b1, slope = draw(hidden), draw(num_rows, hidden).to(dtype)
    # Each reads narrow rows and reads or writes two matrices of wide ones.
    num_bytes, num_operations = dtype.itemsize * num_rows * (width + 2 * hidden), 2 * num_rows * width * hidden
    yield Trial("widen", hidden, lambda tile: run_widen(x, w1, b1, tile), num_bytes, num_operations)
    yield Trial(
        "narrow_backward", hidden, lambda tile: run_narrow_backward(x, w2, slope, tile), num_bytes, num_operations
    )


def residual_trials(num_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Iterator[Trial]:
    """The kernels of the residual sum and its LayerNorm, there and back."""
    draw = _Draws(device)
    x, grad_stream = draw(num_rows, width), draw(num_rows, width)
    mapped, grad_xn = draw(num_rows, width).to(dtype), draw(num_rows, width).to(dtype)
    bias, scale, shift = draw(width), draw(width), draw(width)
    numbers, narrow, wide = num_rows * width, dtype.itemsize, x.itemsize
    yield Trial(
        "add_norm",
        width,
        lambda tile: run_add_norm(x, mapped, bias, scale, shift, LAYER_NORM_EPS, tile),
        numbers * 2 * (narrow + wide),
        0,
    )
    yield Trial(
        "add_norm_backward",
        width,
        lambda tile: run_add_norm_backward(grad_stream, grad_xn, x, scale, LAYER_NORM_EPS, tile),
        numbers * (2 * narrow + 3 * wide),
        0,
    )


def attention_trials(
    num_images: int, num_tokens: int, width: int, heads: int, dtype: torch.dtype, device: torch.device
) -> Iterator[Trial]:
    """The kernels of attention, there and back; the way back is two kernels, the first timed alone too."""
    draw = _Draws(device)
    qkv, grad = draw(num_images, num_tokens, 3 * width).to(dtype), draw(num_images, num_tokens, width).to(dtype)
    mixed, lse = run_attention(qkv, heads)
    rows, product = num_images * num_tokens, 2 * num_images * num_tokens**2 * width
    yield Trial(
        "attention",
        num_tokens - 1,
        lambda tile: run_attention(qkv, heads, tile),
        dtype.itemsize * rows * 4 * width,
        2 * product,
    )
    yield Trial(
        "attention_backward",
        num_tokens - 1,
        lambda tile: run_attention_backward(grad, qkv, mixed, lse, heads, tile),
        dtype.itemsize * rows * 8 * width,
        5 * product,
    )
    yield Trial(
        "first_token_backward",
        num_tokens - 1,
        lambda tile: run_first_token_backward(grad, qkv, mixed, lse, heads, tile),
        dtype.itemsize * rows * 5 * width,
        16 * rows * width,
    )


class _Draws:
    """Normal numbers on a device, the same in every run."""

    def __init__(self, device: torch.device) -> None:
        self._generator = torch.Generator(device).manual_seed(0)

    def __call__(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self._generator, device=self._generator.device)


_COMPILERS = 8

Key = TypeVar("Key")


def timed(calls: Mapping[Key, Callable[[], object]], device: torch.device, repeats: int) -> dict[Key, float | str]:
    """Milliseconds of each call, or why the device could not run it."""
    check_repeats(repeats)
    if device.type == "cuda":
        # Compiling a kernel takes seconds, most of them outside Python, so several are compiled at once.
        with ThreadPoolExecutor(_COMPILERS) as pool:
            list(pool.map(partial(_warm_up, device), calls.values()))
    return {key: _milliseconds_or_why_not(call, device, repeats) for key, call in calls.items()}


def _warm_up(device: torch.device, call: Callable[[], object]) -> None:
    # What fails here fails again where it is timed, and there it is told.
    with suppress(Exception), torch.cuda.device(device):
        torch.cuda.synchronize()  # a thread's first word to the GPU, which gives it a context
        call()


def _milliseconds_or_why_not(call: Callable[[], object], device: torch.device, repeats: int) -> float | str:
    try:
        return _milliseconds(call, device, repeats)
    except (OutOfResources, PTXASError, CompilationError, InputError) as error:
        return " ".join(str(error).split())[:200]


def _milliseconds(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The time of one of many calls in a row, so that launching them is not what is measured."""
    for num_calls in (2, repeats):
        _wait(device)
        began = time.perf_counter()
        for _ in range(num_calls):
            call()
        _wait(device)
    return 1e3 * (time.perf_counter() - began) / repeats


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fastest(found: Mapping[Key, float | str]) -> Key | None:
    """The key of the least time, or None where nothing ran."""
    times = {key: time for key, time in found.items() if isinstance(time, float)}
    return min(times, key=lambda key: times[key]) if times else None
