"""A pass over held-out windows: the losses, and what loggers can show of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from alewm.model.world_model import WorldModel
from alewm.shapes import Float, Tensor, UInt8
from alewm.training.diagnostics import mean_entropy, precision_gap
from alewm.training.logbook import RunningMeans
from alewm.training.losses import Losses, Objective
from alewm.training.noise import RandomStreams
from alewm.training.rollout_picture import rollout_picture
from alewm.training.source import WindowBatch


@dataclass
class Validation:
    """What a pass found."""

    means: RunningMeans = field(default_factory=RunningMeans)
    """Of losses and q, over all windows and ranks."""
    q: list[Float[Tensor, "B C"]] = field(default_factory=list)
    """Capacity probabilities of this rank's windows; only where it was asked to show something."""
    precision_gap: float | None = None
    """How far latents of the first batch are from those of float32, in which planning encodes; of mixed precision."""
    picture: UInt8[Tensor, "rows columns 3"] | None = None
    """Frames and imagined frames of the first windows; only where it was asked to show something."""


@torch.no_grad()
def validate(
    model: WorldModel,
    objective: Objective,
    windows: Iterable[WindowBatch],
    streams: RandomStreams,
    device: torch.device,
    *,
    dtype: torch.dtype | None = None,
    shows: bool = False,
) -> Validation:
    """The losses with running moments, no dropout and the noise of `streams`; `dtype` is that of mixed precision."""
    found = Validation()
    model.eval()
    for batch in windows:
        pixels, actions = batch.to(device)
        noise = streams.draw_step(model, len(pixels), actions.shape[1], drops=False)
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            losses: Losses = objective(model, pixels, actions, noise, streams.directions)
            if shows and found.picture is None:
                found.picture = rollout_picture(model, pixels, actions, losses)
        if dtype is not None and found.precision_gap is None:
            found.precision_gap = precision_gap(losses.latents, model.encode(pixels).latents).item()
        found.means.add(
            {"loss": losses.total, **losses.terms, "q": losses.q.mean(0), "q_entropy": mean_entropy(losses.q)}
        )
        if shows:
            found.q.append(losses.q)
    model.train()
    return found
