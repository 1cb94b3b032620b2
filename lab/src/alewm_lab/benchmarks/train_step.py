"""Time of one training update and of its regularizer."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypedDict

import torch

from alewm.capacity.support import CapacitySupport, polynomial_prior
from alewm.config import overridden
from alewm.devices import find_device
from alewm.errors import InputError
from alewm.kernels.characteristic_function import PathName, choose, why_no_gpu_path, why_no_native_path
from alewm.regularizers.quadrature import EPPS_PULLEY, random_directions
from alewm.regularizers.sigreg import mix_sigreg
from alewm.shapes import Tensor
from alewm.training.acceleration import WARM_UPS, Chosen, acceleration_of, random_batch, updates_of
from alewm.training.config import Acceleration, EncoderBlocks, RunConfig
from alewm.training.presets import preset
from alewm.training.step import repeatable
from alewm_lab.benchmarks.reference import ReferenceStep, lewm_of
from alewm_lab.benchmarks.timing import kernel_table, median_seconds, peak_mebibytes, print_line, recorded

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
    acceleration: Acceleration,
    encoder_blocks: EncoderBlocks,
    deterministic: bool,
    reference: bool,
    profile: bool,
) -> None:
    """Prints median times of an update (losses, gradients, clipping, AdamW), rates and memory."""
    where, config = find_device(device), preset(preset_name)
    asked = {"training.acceleration": acceleration, "training.encoder_blocks": encoder_blocks}
    config = overridden(config, asked)
    dtype = config.training.autocast_dtype(where)
    data = random_batch(config, batch, where)
    chosen = acceleration_of(config, where)
    rows: dict[str, Row] = {}
    if reference:
        rows |= _reference_row(config, data, repeats, where)
    if reference and chosen.path != "none":
        rows["none"] = _timed(partial(updates_of(config, Chosen("none", "compared"), where), *data), repeats, where)
    plain = f"{chosen.path}, fused blocks" if chosen.fused else chosen.path
    ours = f"{plain}, repeatable" if deterministic else plain

    def our_update() -> Callable[[], object]:
        return partial(updates_of(config, chosen, where), *data)

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


_EVERY_PREFIX_UP_TO = 16
_NUM_BLOCKS = 8
_PRIOR_DEGREE = -1.5


def bench_regularizer(*, batch: int, frames: int, latent_dim: int, projections: int, repeats: int, device: str) -> None:
    """Prints milliseconds of every path and its agreement with the definition in float64."""
    support, where = _support(latent_dim), find_device(device)
    generator = torch.Generator().manual_seed(0)
    s = torch.randn(frames, batch, latent_dim, generator=generator).to(where).requires_grad_()
    logits = torch.randn(batch, len(support), generator=generator).to(where).requires_grad_()
    u = random_directions(latent_dim, projections, generator=generator).to(where)
    prior = polynomial_prior(len(support), _PRIOR_DEGREE).to(where)

    def loss(path: PathName, dtype: torch.dtype, s: torch.Tensor = s, logits: torch.Tensor = logits) -> torch.Tensor:
        q = logits.to(dtype).softmax(-1)
        statistic = mix_sigreg(s.to(dtype), q[None], u.to(dtype)[None], prior.to(dtype)[None], support, path=path)
        return statistic.mean()

    exact = loss("reference", torch.float64)
    exact_gradient = torch.autograd.grad(exact, s)[0]
    paths: list[PathName] = ["reference", "recurrence"]
    obstacles: dict[PathName, str | None] = {
        "native": why_no_native_path(s, support, EPPS_PULLEY),
        "gpu": why_no_gpu_path(s, u),
    }
    paths += [path for path, obstacle in obstacles.items() if obstacle is None]
    rows: dict[str, dict[str, Any]] = {}
    for path in paths:
        value = loss(path, torch.float32)
        gradient = torch.autograd.grad(value, s)[0]
        rows[path] = {
            "milliseconds": 1e3 * median_seconds(partial(_forward_backward, loss, path, s, logits), repeats, s.device),
            "recorded_milliseconds": _recorded_milliseconds(loss, path, s, logits),
            "peak_mebibytes": _peak_mebibytes(partial(_forward_backward, loss, path, s, logits), s.device),
            "value_error": float(((value - exact) / exact).abs().detach()),
            "gradient_error": float((gradient - exact_gradient).abs().max() / exact_gradient.abs().max()),
        }
    chosen = choose(s, support, EPPS_PULLEY)
    print(f"MixSIGReg, B {batch}, F {frames}, D {latent_dim}, C {len(support)}, P {projections}, float32 on {where}")
    print(f"{'path':<12}{'ms':>9}{'ratio':>8}{'recorded ms':>13}{'MiB':>8}{'value error':>13}{'gradient error':>16}")
    for name, row in rows.items():
        ratio = rows["reference"]["milliseconds"] / row["milliseconds"]
        print(
            f"{name:<12}{row['milliseconds']:>9.2f}{ratio:>7.1f}x{_or_dash(row['recorded_milliseconds']):>13}"
            f"{_or_dash(row['peak_mebibytes']):>8}{row['value_error']:>13.1e}{row['gradient_error']:>16.1e}"
        )
    for unavailable, obstacle in obstacles.items():
        if obstacle is not None:
            print(f"{unavailable} is not available: {obstacle}")
    print(f"chosen: {chosen.path} ({chosen.reason})")
    sizes = {"B": batch, "F": frames, "D": latent_dim, "C": len(support), "P": projections}
    print_line("regularizer", sizes=sizes, paths=rows, chosen=chosen.path)


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _peak_mebibytes(call: Callable[[], object], device: torch.device) -> float | None:
    """Memory a call needs at most beyond what was there before it."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def _recorded_milliseconds(
    loss: Callable[..., torch.Tensor], path: PathName, s: torch.Tensor, logits: torch.Tensor
) -> float | None:
    """Time as part of a CUDA graph, as training runs it: kernels without the processor's time to launch them."""
    if s.device.type != "cuda":
        return None
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (s, logits)]

    def run() -> None:
        torch.autograd.grad(loss(path, torch.float32, *leaves), leaves)

    return 1e3 * median_seconds(recorded(run, s.device), 15, s.device)


def _support(latent_dim: int) -> CapacitySupport:
    if latent_dim <= _EVERY_PREFIX_UP_TO:
        return CapacitySupport.every(latent_dim)
    if latent_dim % _NUM_BLOCKS:
        raise InputError(
            f"--latent-dim above {_EVERY_PREFIX_UP_TO} must be divisible by {_NUM_BLOCKS}, got {latent_dim}."
        )
    return CapacitySupport(tuple(latent_dim * block // _NUM_BLOCKS for block in range(1, _NUM_BLOCKS + 1)))


def _forward_backward(loss: Callable[..., torch.Tensor], path: PathName, s: torch.Tensor, logits: torch.Tensor) -> None:
    torch.autograd.grad(loss(path, torch.float32), (s, logits))
