"""Fused blocks of an encoder: every kernel with every tile, and several blocks beside plain ones."""

import copy
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from alewm.benchmarks.timing import median_seconds, print_line, recorded
from alewm.devices import find_device
from alewm.errors import InputError
from alewm.model.fused.widths import why_not_fused
from alewm.model.vit import ViTBlock, ViTConfig, one_after_the_other
from alewm.shapes import Tensor


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
    from alewm.benchmarks.kernel_trials import attention_trials, fastest, mlp_trials, residual_trials, time_tiles
    from alewm.model.fused.tiles import tile_from

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
        times = {tile: time for (kernel, tile), time in found.items() if kernel == trial.kernel}
        for tile, time in times.items():
            line = {"kernel": trial.kernel, "tile": str(tile)}
            if isinstance(time, str):
                print(f"{trial.kernel:<22}{tile!s:<34}{time}")
                lines.append({**line, "obstacle": time})
                continue
            mark = " *" if tile == fastest(times) else ""
            moved, done = trial.num_bytes / time / 1e9, trial.num_operations / time / 1e9
            print(f"{trial.kernel:<22}{tile!s:<34}{time:>8.3f}{moved:>7.2f}{done:>9.1f}{mark}")
            lines.append({**line, "milliseconds": time, "terabytes_per_second": moved, "teraflops": done})
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
    from alewm.model.fused.chain import through_blocks

    if way == "fused":
        return lambda x: through_blocks(blocks, x, dtype)
    if where.type == "cuda":
        for block in blocks:
            block.compile(dynamic=False)
    return lambda x: one_after_the_other(blocks, x)
