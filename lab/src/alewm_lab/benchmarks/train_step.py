"""The training update with plain and with fused blocks of the encoder, each in a process of its own.

A process in which recording a CUDA graph failed cannot be trusted with the next measurement; so one failure costs one
row.

One training update with the data already on the device: LeWM as documented, and ours on each of its paths.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypedDict

import torch

from alewm.config import overridden
from alewm.devices import find_device
from alewm.errors import InputError
from alewm.shapes import Tensor
from alewm.training.acceleration import WARM_UPS, acceleration_of, random_batch, updates_of
from alewm.training.config import Acceleration, EncoderBlocks, RunConfig
from alewm.training.presets import preset
from alewm.training.step import repeatable
from alewm_lab.benchmarks.reference import ReferenceStep, lewm_of
from alewm_lab.benchmarks.timing import kernel_table, median_seconds, peak_mebibytes, print_line


def bench_block_variants(
    *,
    encoder_blocks: Sequence[str],
    deterministic: bool,
    profile: bool,
    reference: bool,
    preset_name: str,
    **options: Any,
) -> None:
    """Prints milliseconds and memory of each variant, or the last line of what went wrong."""
    if not encoder_blocks:
        raise InputError("--encoder-blocks needs at least one of auto, plain and fused.")
    flags = [f"--preset={preset_name}", *(f"--{name}={value}" for name, value in options.items())]
    flags += ["--deterministic"] * deterministic + ["--reference"] * reference + ["--profile"] * profile
    rows: dict[str, dict[str, Any]] = {}
    print(f"{'blocks':<8}{'ms':>9}{'ratio':>8}{'GiB':>8}  updates")
    for which in encoder_blocks:
        row = rows[which] = _measured([*flags, f"--encoder-blocks={which}"], shows=profile)
        if "error" in row:
            print(f"{which:<8}{'-':>9}{'-':>8}{'-':>8}  {row['error']}", flush=True)
            continue
        first = next(found["milliseconds"] for found in rows.values() if "error" not in found)
        peak = "-" if row["peak_mebibytes"] is None else f"{row['peak_mebibytes'] / 1024:.1f}"
        ratio = f"{first / row['milliseconds']:.2f}x"
        print(f"{which:<8}{row['milliseconds']:>9.2f}{ratio:>8}{peak:>8}  {row['updates']}", flush=True)
    print_line("train-step", variants=rows, preset=preset_name, deterministic=deterministic, **options)


def _measured(flags: Sequence[str], *, shows: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "alewm_lab", "bench", "train-step", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return {"error": said[-1] if said else f"status {done.returncode}"}
    *table, last = done.stdout.splitlines()
    if shows:
        print("\n".join(table))
    line = json.loads(last)
    return {name: line[name] for name in ("milliseconds", "peak_mebibytes", "updates", "encoder_blocks", "rows")}


_CALLS_BEFORE_TIMING = WARM_UPS + 1  # compiled in the first, recorded in the last


class Row(TypedDict):
    """What was measured of one way to update."""

    milliseconds: float
    peak_mebibytes: float | None
    first_seconds: float


def bench_train_step(
    *,
    preset_name: str,
    batch: int,
    repeats: int,
    device: str,
    precision: Literal["auto", "float32", "bfloat16"],
    acceleration: Acceleration,
    encoder_blocks: EncoderBlocks,
    deterministic: bool,
    reference: bool,
    profile: bool,
) -> None:
    """Prints median times of an update (losses, gradients, clipping, AdamW), rates and memory."""
    where, config = find_device(device), preset(preset_name)
    asked = {"precision": precision, "acceleration": acceleration, "encoder_blocks": encoder_blocks}
    config = overridden(config, {f"training.{name}": value for name, value in asked.items()})
    dtype = config.training.autocast_dtype(where)
    data = random_batch(config, batch, where)
    chosen = acceleration_of(config, where)
    rows: dict[str, Row] = {}
    if reference:
        rows |= _reference_row(config, data, repeats, where)
    if reference and chosen.path != "none":
        rows["none"] = _timed(partial(updates_of(config, "none", where), *data), repeats, where)
    plain = f"{chosen.path}, fused blocks" if chosen.fused else chosen.path
    ours = f"{plain}, repeatable" if deterministic else plain

    def our_update() -> Callable[[], object]:
        return partial(updates_of(config, chosen.path, where, fused=chosen.fused), *data)

    update = our_update()
    with repeatable(deterministic):
        rows[ours] = _timed(update, repeats, where)
    if deterministic:  # second, since what repeatable products need is settled by a process's first one
        rows[plain] = _timed(our_update(), repeats, where)
    arithmetic = str(dtype or torch.float32).removeprefix("torch.")
    method, latent, size = config.objective.method, config.model.latent_dim, config.model.encoder.image_size
    windows = f"{batch} windows of {data[0].shape[1]} frames of {size} x {size}"
    print(f"{preset_name}: {method}, D {latent}, {windows} on {where}")
    repeats_itself = ", repeatable bit by bit" if deterministic else ""
    print(f"{arithmetic}, median of {repeats}; ours: {chosen}{repeats_itself}")
    _print_rows(rows, batch)
    if profile:
        print(kernel_table(update, where))
    print_line(
        "train-step",
        preset=preset_name,
        batch=batch,
        device=where.type,
        precision=arithmetic,
        path=chosen.path,
        encoder_blocks="fused" if chosen.fused else "plain",
        updates=str(chosen),
        deterministic=deterministic,
        milliseconds=rows[ours]["milliseconds"],
        peak_mebibytes=rows[ours]["peak_mebibytes"],
        windows_per_second=1e3 * batch / rows[ours]["milliseconds"],
        rows=rows,
    )


def _reference_row(config: RunConfig, data: tuple[Tensor, Tensor], repeats: int, where: torch.device) -> dict[str, Row]:
    """The update of LeWM as documented, under the name of its encoder; it is gone before ours is made."""
    step = ReferenceStep(
        lewm_of(config.model),
        where,
        weight=config.objective.regularizer_weight,
        projections=config.objective.num_projections,
    )
    dtype = config.training.autocast_dtype(where)
    return {f"reference ({step.model.encoder_home})": _timed(lambda: step(*data, dtype), repeats, where)}


def _print_rows(rows: Mapping[str, Row], batch: int) -> None:
    print(f"{'':<34}{'ms':>9}{'ratio':>8}{'windows/s':>12}{'peak MiB':>10}{'first calls s':>15}")
    slowest = next(iter(rows.values()))["milliseconds"]
    for name, row in rows.items():
        peak = "-" if row["peak_mebibytes"] is None else f"{row['peak_mebibytes']:,.0f}"
        rate, ratio = 1e3 * batch / row["milliseconds"], slowest / row["milliseconds"]
        print(
            f"{name:<34}{row['milliseconds']:>9.2f}{ratio:>7.2f}x{rate:>12,.0f}{peak:>10}{row['first_seconds']:>15.1f}"
        )


def _timed(call: Callable[[], object], repeats: int, where: torch.device) -> Row:
    is_gpu = where.type == "cuda"
    if is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(where)
    began = time.perf_counter()
    for _ in range(_CALLS_BEFORE_TIMING if is_gpu else 1):
        call()
    first = time.perf_counter() - began
    seconds = median_seconds(call, repeats, where)
    return {"milliseconds": 1e3 * seconds, "peak_mebibytes": peak_mebibytes(where), "first_seconds": first}
