"""A pass over held-out windows: losses, and a picture of what the model imagines.

The picture needs no decoder: it shows the recorded frame whose latent is nearest to the imagined one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from alewm.model.world_model import WorldModel
from alewm.shapes import Float, Tensor, UInt8
from alewm.training.diagnostics import mean_entropy, precision_gap
from alewm.training.logbook import RunningMeans
from alewm.training.noise import RandomStreams
from alewm.training.objective import Losses, Objective
from alewm.training.source import WindowBatch

NUM_WINDOWS = 4
"""Windows in one picture."""


@torch.no_grad()
def rollout_picture(
    model: WorldModel,
    pixels: UInt8[Tensor, "B F Y X 3"],
    actions: Float[Tensor, "B _ A"],
    losses: Losses,
    num_windows: int = NUM_WINDOWS,
) -> UInt8[Tensor, "rows columns 3"]:
    """Two rows of frames per window: what was seen, and below it what was imagined from its first frame.

    From each window's first latent the recorded actions are rolled out, at the capacity that is likeliest for these
    windows together; an imagined latent is shown as the nearest of all frames in the batch, over the coordinates in
    use. `losses` is the objective's value for this batch, which has encoded it.
    """
    # Spread over the batch: validation windows come in the order of the file, and neighbours look alike.
    chosen = torch.linspace(0, len(pixels) - 1, min(num_windows, len(pixels)), device=pixels.device).long()
    shown = pixels[chosen]
    capacity = model.support.capacities[int(losses.q[chosen].mean(0).argmax())]
    z = losses.latents[..., :capacity]
    first = z[chosen, 0]
    imagined = model.imagine_prefix(first, actions[chosen], capacity, model.context_length)
    z_hat = torch.stack([first, *imagined], dim=1).to(z.dtype)
    nearest = torch.cdist(z_hat.flatten(0, 1), z.flatten(0, 1)).argmin(-1)
    found = pixels.flatten(0, 1)[nearest].view_as(shown)
    pairs = torch.stack([shown, found], dim=1)
    num, _, num_frames, height, width, _ = pairs.shape
    return pairs.permute(0, 1, 3, 2, 4, 5).reshape(num * 2 * height, num_frames * width, 3).cpu()


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
