"""What fused blocks of an encoder achieve: every kernel with each of its tiles, and blocks beside plain ones."""

import copy
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from alewm.devices import find_device
from alewm.errors import InputError
from alewm.kernels.encoder_blocks import run_add_norm, run_add_norm_backward, run_narrow_backward, run_widen
from alewm.kernels.image_attention import run_attention, run_attention_backward, run_first_token_backward
from alewm.kernels.tiles import CANDIDATES, Tile, fitting, why_not_fused
from alewm.model.vit import LAYER_NORM_EPS, ViTBlock, ViTConfig, apply_blocks
from alewm.shapes import Tensor
from alewm_lab.benchmarks.timing import check_repeats, median_seconds, print_line, recorded, wait_for


class TileTrial(NamedTuple):
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
    trials: Sequence[TileTrial], more: Mapping[str, Sequence[Tile]], device: torch.device, repeats: int
) -> dict[tuple[str, Tile], float | str]:
    """Milliseconds of each kernel with each of its candidates and of `more`, or why the device could not run it."""
    calls: dict[tuple[str, Tile], Callable[[], object]] = {}
    for trial in trials:
        for tile in fitting((*CANDIDATES[trial.kernel], *more.get(trial.kernel, ())), trial.columns):
            calls[trial.kernel, tile] = partial(trial.call, tile)
    return timed(calls, device, repeats)


def tile_from(text: str) -> Tile:
    """The tile that `str` wrote: rows,chunk,warps,stages,resident, or the first four of them."""
    numbers = text.split(",")
    if len(numbers) not in (4, 5) or not all(number.strip().isdigit() for number in numbers):
        form = "rows,chunk,warps,stages,resident, for example 128,64,8,2,0"
        raise InputError(f"A tile is written {form}; got {text!r}.")
    tile = Tile(*map(int, numbers))
    for name, value in vars(tile).items():
        if value < 1 and name != "resident":
            raise InputError(f"The {name} of a tile must be at least 1, got {value} in {text!r}.")
        if name in ("rows", "chunk", "warps") and value & (value - 1):
            raise InputError(f"The {name} of a tile must be a power of two, got {value} in {text!r}.")
    return tile


def mlp_trials(num_rows: int, width: int, hidden: int, dtype: torch.dtype, device: torch.device) -> Iterator[TileTrial]:
    """The kernels of an MLP, one after the other."""
    draw = _Draws(device)
    x, w1, w2 = draw(num_rows, width).to(dtype), draw(hidden, width).to(dtype), draw(width, hidden).to(dtype)
    b1, slope = draw(hidden), draw(num_rows, hidden).to(dtype)
    # Each reads narrow rows and reads or writes two matrices of wide ones.
    num_bytes, num_operations = dtype.itemsize * num_rows * (width + 2 * hidden), 2 * num_rows * width * hidden
    yield TileTrial("widen", hidden, lambda tile: run_widen(x, w1, b1, tile), num_bytes, num_operations)
    yield TileTrial(
        "narrow_backward", hidden, lambda tile: run_narrow_backward(x, w2, slope, tile), num_bytes, num_operations
    )


def residual_trials(num_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Iterator[TileTrial]:
    """The kernels of the residual sum and its LayerNorm, there and back."""
    draw = _Draws(device)
    x, grad_stream = draw(num_rows, width), draw(num_rows, width)
    mapped, grad_xn = draw(num_rows, width).to(dtype), draw(num_rows, width).to(dtype)
    bias, scale, shift = draw(width), draw(width), draw(width)
    numbers, narrow, wide = num_rows * width, dtype.itemsize, x.itemsize
    yield TileTrial(
        "add_norm",
        width,
        lambda tile: run_add_norm(x, mapped, bias, scale, shift, LAYER_NORM_EPS, tile),
        numbers * 2 * (narrow + wide),
        0,
    )
    yield TileTrial(
        "add_norm_backward",
        width,
        lambda tile: run_add_norm_backward(grad_stream, grad_xn, x, scale, LAYER_NORM_EPS, tile),
        numbers * (2 * narrow + 3 * wide),
        0,
    )


def attention_trials(
    num_images: int, num_tokens: int, width: int, heads: int, dtype: torch.dtype, device: torch.device
) -> Iterator[TileTrial]:
    """The kernels of attention, there and back; the way back is two kernels, the first timed alone too."""
    draw = _Draws(device)
    qkv, grad = draw(num_images, num_tokens, 3 * width).to(dtype), draw(num_images, num_tokens, width).to(dtype)
    mixed, lse = run_attention(qkv, heads)
    rows, product = num_images * num_tokens, 2 * num_images * num_tokens**2 * width
    yield TileTrial(
        "attention",
        num_tokens - 1,
        lambda tile: run_attention(qkv, heads, tile),
        dtype.itemsize * rows * 4 * width,
        2 * product,
    )
    yield TileTrial(
        "attention_backward",
        num_tokens - 1,
        lambda tile: run_attention_backward(grad, qkv, mixed, lse, heads, tile),
        dtype.itemsize * rows * 8 * width,
        5 * product,
    )
    yield TileTrial(
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
        wait_for(device)
        began = time.perf_counter()
        for _ in range(num_calls):
            call()
        wait_for(device)
    return 1e3 * (time.perf_counter() - began) / repeats


def fastest(found: Mapping[Key, float | str]) -> Key | None:
    """The key of the least time, or None where nothing ran."""
    times = {key: time for key, time in found.items() if isinstance(time, float)}
    return min(times, key=lambda key: times[key]) if times else None


def bench_encoder_blocks(
    *,
    rows: int,
    tokens: int,
    width: int,
    hidden: int,
    heads: int,
    blocks: int,
    tiles: Sequence[str],
    repeats: int,
    device: str,
) -> None:
    """Prints milliseconds, TB/s and TFLOP/s of every kernel and tile, then the blocks forward and backward."""
    where = find_device(device)
    if tokens < 2 or rows < 1 or rows % tokens or math.isqrt(tokens - 1) ** 2 != tokens - 1:
        raise InputError(
            f"--rows must be whole images of --tokens each, one more than a square, got {rows} and {tokens}."
        )
    if blocks < 1:
        raise InputError(f"--blocks must be at least 1, got {blocks}.")
    side = math.isqrt(tokens - 1)
    config = ViTConfig(image_size=side, patch_size=1, hidden_dim=width, num_heads=heads, mlp_dim=hidden)
    obstacle = why_not_fused(config)
    if where.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        obstacle = f"the device is a {where.type}; set TRITON_INTERPRET=1 to try the command on a few rows"
    if obstacle is not None:
        raise InputError(f"These blocks cannot be fused: {obstacle}.")
    kernels = _kernels(rows, tokens, config, tiles, repeats, where)
    stack = [ViTBlock(config).to(where) for _ in range(blocks)]
    x = torch.randn(rows // tokens, tokens, width, device=where, generator=torch.Generator(where).manual_seed(1))
    found = {name: _times(name, stack, x, repeats) for name in ("plain", "fused")}
    print(f"\n{f'{blocks} blocks, ms':<22}{'forward':>9}{'backward':>10}{'both':>8}")
    for name, row in found.items():
        print(f"{name:<22}{row['forward']:>9.3f}{row['backward']:>10.3f}{row['both']:>8.3f}")
    sizes = {"rows": rows, "tokens": tokens, "width": width, "hidden": hidden, "heads": heads, "blocks": blocks}
    print_line("encoder-blocks", sizes=sizes, device=where.type, kernels=kernels, blocks=found)


def _kernels(
    rows: int, tokens: int, config: ViTConfig, tiles: Sequence[str], repeats: int, where: torch.device
) -> list[dict[str, Any]]:
    dtype, width = _dtype(where), config.hidden_dim
    trials = [
        *attention_trials(rows // tokens, tokens, width, config.num_heads, dtype, where),
        *residual_trials(rows, width, dtype, where),
        *mlp_trials(rows, width, config.mlp_dim, dtype, where),
    ]
    more = tuple(tile_from(text) for text in tiles)
    found = time_tiles(trials, {trial.kernel: more for trial in trials}, where, repeats)
    print(f"{rows} rows, width {width}, hidden {config.mlp_dim}, {dtype} on {where}; * is the fastest")
    print(f"{'kernel':<22}{'rows,chunk,warps,stages,resident':<34}{'ms':>8}{'TB/s':>7}{'TFLOP/s':>9}")
    lines: list[dict[str, Any]] = []
    for trial in trials:
        times = {tile: spent for (kernel, tile), spent in found.items() if kernel == trial.kernel}
        for tile, spent in times.items():
            line = {"kernel": trial.kernel, "tile": str(tile)}
            if isinstance(spent, str):
                print(f"{trial.kernel:<22}{tile!s:<34}{spent}")
                lines.append({**line, "obstacle": spent})
                continue
            mark = " *" if tile == fastest(times) else ""
            moved, done = trial.num_bytes / spent / 1e9, trial.num_operations / spent / 1e9
            print(f"{trial.kernel:<22}{tile!s:<34}{spent:>8.3f}{moved:>7.2f}{done:>9.1f}{mark}")
            lines.append({**line, "milliseconds": spent, "terabytes_per_second": moved, "teraflops": done})
    return lines


def _dtype(where: torch.device) -> torch.dtype:
    return torch.bfloat16 if where.type == "cuda" else torch.float32  # Triton's interpreter multiplies no bfloat16


def _times(way: str, blocks: Sequence[ViTBlock], x: Tensor, repeats: int) -> dict[str, float]:
    """Milliseconds forward, backward and both, recorded as a CUDA graph on a GPU, as training runs it."""
    one, two = (
        1e3 * median_seconds(recorded(_call(way, blocks, x, goes_back), x.device), repeats, x.device)
        for goes_back in (False, True)
    )
    return {"forward": one, "backward": two - one, "both": two}


def _call(way: str, blocks: Sequence[ViTBlock], x: Tensor, goes_back: bool) -> Callable[[], None]:
    where, dtype = x.device, _dtype(x.device)
    leaf, own = x.clone().requires_grad_(), copy.deepcopy(list(blocks))
    parameters = [parameter for block in own for parameter in block.parameters()]
    through = _through(way, own, dtype, where)

    def call() -> None:
        with torch.autocast(where.type, dtype=dtype, enabled=dtype != torch.float32):
            y = through(leaf)
        if goes_back:
            torch.autograd.grad(y, (leaf, *parameters), x)

    return call


def _through(
    way: str, blocks: Sequence[ViTBlock], dtype: torch.dtype, where: torch.device
) -> Callable[[Tensor], Tensor]:
    from alewm.kernels.encoder_blocks import through_blocks

    if way == "fused":
        return lambda x: through_blocks(blocks, x, dtype)
    if where.type == "cuda":
        for block in blocks:
            block.compile(dynamic=False)
    return lambda x: apply_blocks(blocks, x)
