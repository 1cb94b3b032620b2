"""Fused halves of an encoder's block: every kernel with every tile, and the half beside the plain one."""

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from alewm.benchmarks.timing import median_seconds, print_line, recorded
from alewm.devices import find_device
from alewm.errors import InputError
from alewm.model.fused.widths import why_not_fused
from alewm.model.vit import Halves, ViTBlock, ViTConfig
from alewm.shapes import Tensor

Half = Callable[[ViTBlock, Tensor], Tensor]


def bench_half_blocks(
    *,
    rows: int,
    tokens: int,
    width: int,
    hidden: int,
    heads: int,
    tiles: Sequence[str],
    repeats: int,
    device: str,
) -> None:
    """Prints milliseconds, TB/s and TFLOP/s of every kernel and tile, then the halves forward and backward."""
    where = find_device(device)
    obstacle = why_not_fused(width, hidden)
    if where.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        obstacle = f"the device is a {where.type}; set TRITON_INTERPRET=1 to try the command on a few rows"
    if obstacle is not None:
        raise InputError(f"Half-blocks cannot be fused: {obstacle}.")
    if tokens < 1 or rows < 1 or rows % tokens:
        raise InputError(f"--rows must be whole images of --tokens each, got {rows} and {tokens}.")
    kernels = _kernels(rows, width, hidden, tiles, repeats, where)
    config = ViTConfig(image_size=1, patch_size=1, hidden_dim=width, num_heads=heads, mlp_dim=hidden)
    block = ViTBlock(config).to(where)
    x = torch.randn(rows // tokens, tokens, width, device=where, generator=torch.Generator(where).manual_seed(1))
    found = {"MLP": _both_paths(ViTBlock.mlp_half, "mlp", block, x, repeats)}
    print(f"\n{'half, ms':<22}{'forward':>9}{'backward':>10}{'both':>8}")
    for name, paths in found.items():
        for path, row in paths.items():
            print(f"{name + ', ' + path:<22}{row['forward']:>9.3f}{row['backward']:>10.3f}{row['both']:>8.3f}")
    sizes = {"rows": rows, "tokens": tokens, "width": width, "hidden": hidden, "heads": heads}
    print_line("half-blocks", sizes=sizes, device=where.type, kernels=kernels, halves=found)


def _kernels(
    rows: int, width: int, hidden: int, tiles: Sequence[str], repeats: int, where: torch.device
) -> list[dict[str, Any]]:
    from alewm.model.fused.tiles import tile_from, tile_of
    from alewm.model.fused.trials import mlp_trials, time_tiles

    dtype = _dtype(where)
    chosen = list(mlp_trials(rows, width, hidden, dtype, where))
    more = tuple(tile_from(text) for text in tiles)
    found = time_tiles(chosen, width, {trial.kernel: more for trial in chosen}, where, repeats)
    sizes = {trial.kernel: trial for trial in chosen}
    print(f"{rows} rows, width {width}, hidden {hidden}, {dtype} on {where}; * is the fastest")
    print(f"{'kernel':<18}{'rows,chunk,warps,stages,parts':<31}{'ms':>8}{'TB/s':>7}{'TFLOP/s':>9}")
    lines: list[dict[str, Any]] = []
    for (kernel, tile), time in found.items():
        trial, line = sizes[kernel], {"kernel": kernel, "tile": str(tile)}
        if isinstance(time, str):
            print(f"{kernel:<18}{tile!s:<31}{time}")
            lines.append({**line, "obstacle": time})
            continue
        mark = " *" if tile == tile_of(kernel, width, trial.columns) else ""
        moved, done = trial.num_bytes / time / 1e9, trial.num_operations / time / 1e9
        print(f"{kernel:<18}{tile!s:<31}{time:>8.3f}{moved:>7.2f}{done:>9.1f}{mark}")
        lines.append({**line, "milliseconds": time, "terabytes_per_second": moved, "teraflops": done})
    return lines


def _dtype(where: torch.device) -> torch.dtype:
    return torch.bfloat16 if where.type == "cuda" else torch.float32  # Triton's interpreter multiplies no bfloat16


def _both_paths(
    half: Half, which: Literal["mlp"], block: ViTBlock, x: Tensor, repeats: int
) -> dict[str, dict[str, float]]:
    from alewm.model.fused.blocks import FUSED_HALVES

    found = {}
    for path, halves in (("plain", Halves()), ("fused", FUSED_HALVES[which])):
        block.halves = halves
        compiled = torch.compile(half, dynamic=False) if x.is_cuda else half
        found[path] = _half_times(compiled, block, x, repeats)
    return found


def _half_times(half: Half, block: ViTBlock, x: Tensor, repeats: int) -> dict[str, float]:
    """Milliseconds forward, backward and both, recorded as a CUDA graph on a GPU, as training runs it."""
    one, two = (
        1e3 * median_seconds(recorded(_call(half, block, x, goes_back), x.device), repeats, x.device)
        for goes_back in (False, True)
    )
    return {"forward": one, "backward": two - one, "both": two}


def _call(half: Half, block: ViTBlock, x: Tensor, goes_back: bool) -> Callable[[], None]:
    where, dtype = x.device, _dtype(x.device)
    leaf, block = x.clone().requires_grad_(), copy.deepcopy(block)

    def call() -> None:
        with torch.autocast(where.type, dtype=dtype, enabled=dtype != torch.float32):
            y = half(block, leaf)
        if goes_back:
            torch.autograd.grad(y, (leaf, *block.parameters()), x, allow_unused=True)

    return call
