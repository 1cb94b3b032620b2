"""One training update, whole, with the data already on the device."""

from dataclasses import replace
from typing import Literal

import torch

from alewm.benchmarks.timing import median_seconds, print_line
from alewm.devices import find_device
from alewm.errors import InputError
from alewm.experiments.presets import preset
from alewm.model.world_model import build_world_model
from alewm.training.losses import Objective
from alewm.training.noise import RandomStreams
from alewm.training.optim import build_optimizer
from alewm.training.step import update

_FRAMES = 4


def bench_train_step(
    *,
    preset_name: str,
    batch: int,
    repeats: int,
    device: str,
    precision: Literal["auto", "float32", "bfloat16"],
    compiled: bool,
) -> None:
    """Prints the median time of an update (losses, gradients, clipping, AdamW), its rate and its memory."""
    where = find_device(device)
    if compiled and where.type != "cuda":
        raise InputError(f"Compiling needs a GPU, but the device is {where.type}; leave out --compile.")
    config = preset(preset_name)
    training = replace(config.training, precision=precision)
    dtype = training.autocast_dtype(where)
    model = build_world_model(config.model, torch.Generator().manual_seed(0)).to(where).train()
    if compiled:
        model.encoder.compile()
        model.predictor.compile()
    objective = Objective(config.objective, config.model).to(where)
    optimizer, streams = build_optimizer(model, training.optim), RandomStreams(0, where)
    size, generator = config.model.encoder.image_size, torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (batch, _FRAMES, size, size, 3), dtype=torch.uint8, generator=generator).to(where)
    actions = torch.randn(batch, _FRAMES - 1, config.model.action_dim, generator=generator).to(where)

    def step() -> None:
        noise = streams.draw_step(model, batch, _FRAMES - 1, drops=True)
        update(
            model,
            objective,
            optimizer,
            pixels,
            actions,
            noise,
            streams.directions,
            clip_norm=training.optim.clip_norm,
            autocast_dtype=dtype,
        )

    if where.type == "cuda":
        torch.cuda.reset_peak_memory_stats(where)
    seconds = median_seconds(step, repeats, where)
    peak = torch.cuda.max_memory_allocated(where) / 2**20 if where.type == "cuda" else None
    arithmetic = str(dtype or torch.float32).removeprefix("torch.")
    method, latent = config.objective.method, config.model.latent_dim
    print(f"{preset_name}: {method}, D {latent}, {batch} windows of {_FRAMES} frames of {size} x {size} on {where}")
    print(f"{arithmetic}, {'compiled' if compiled else 'not compiled'}, median of {repeats}")
    print(f"{'ms':>10}{'windows/s':>12}{'peak MiB':>12}")
    print(f"{1e3 * seconds:>10.2f}{batch / seconds:>12,.0f}{'-' if peak is None else f'{peak:,.0f}':>12}")
    print_line(
        "train-step",
        preset=preset_name,
        batch=batch,
        device=where.type,
        precision=arithmetic,
        compiled=compiled,
        milliseconds=1e3 * seconds,
        windows_per_second=batch / seconds,
        peak_mebibytes=peak,
    )
