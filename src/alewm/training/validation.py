"""Validation: losses on held-out windows, statistics of the latent, and a picture of an imagined rollout.

`recalibrate` recomputes the BatchNorm statistics with the current weights first. The picture needs no decoder: it shows
the recorded frame whose latent is nearest to the imagined one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from alewm.capacity.support import CapacitySupport, survival
from alewm.devices import at_least_float32
from alewm.distributed import detached_mean
from alewm.model.projector import BatchNorm
from alewm.model.world_model import WorldModel
from alewm.shapes import Float, Tensor, UInt8
from alewm.training.data import WindowBatch
from alewm.training.metrics import RunningMeans
from alewm.training.noise import RandomStreams
from alewm.training.objective import Losses, Objective


def covariance_spectrum(rows: Float[Tensor, "N D"]) -> Float[Tensor, "D"]:
    """Eigenvalues of the covariance (divisor N) of all ranks' rows, largest first."""
    rows = at_least_float32(rows.detach())
    centred = rows - detached_mean(rows.mean(0))
    covariance = detached_mean(centred.mT @ centred / len(rows))
    ascending: Tensor = torch.linalg.eigvalsh(covariance)
    return ascending.flip(0).clamp(min=0)  # rounding makes tiny eigenvalues negative


def rank_of_spectrum(spectrum: Float[Tensor, "D"]) -> Float[Tensor, ""]:
    """exp of the entropy of the normalised eigenvalues; D for an isotropic latent, 1 for a line."""
    shares = spectrum / spectrum.sum().clamp(min=torch.finfo(spectrum.dtype).tiny)
    rank: Tensor = torch.special.entr(shares).sum().exp()
    return rank


def effective_rank(s: Float[Tensor, "B F D"]) -> Float[Tensor, ""]:
    """How many directions the latents of a batch use."""
    return rank_of_spectrum(covariance_spectrum(s.flatten(0, 1)))


def variance(s: Float[Tensor, "B F D"]) -> Float[Tensor, "D"]:
    """The variance of each coordinate before masking: the variance of the prediction target.

    For a coordinate that is rarely active it exceeds the masked variance.
    """
    rows = at_least_float32(s.detach()).flatten(0, 1)
    return detached_mean((rows - detached_mean(rows.mean(0))).square().mean(0))


def masked_variance(s: Float[Tensor, "B F D"], q: Float[Tensor, "B C"], support: CapacitySupport) -> Float[Tensor, "D"]:
    """The variance of each coordinate when a capacity drawn from q masks it, the paper's v_mix.

    Where the masked latent follows its reference distribution, this equals the prior's survival probability.
    """
    s = at_least_float32(s.detach())
    active = survival(q.detach().to(s.dtype), support)[:, None]
    second = detached_mean((active * s.square()).mean((0, 1)))
    first = detached_mean((active * s).mean((0, 1)))
    return second - first.square()


def mean_entropy(q: Float[Tensor, "B C"]) -> Float[Tensor, ""]:
    """The entropy of the capacity distribution, in nats, averaged over windows."""
    entropy: Tensor = torch.special.entr(q).sum(-1).mean()
    return entropy


def precision_gap(s: Float[Tensor, "B F D"], exact: Float[Tensor, "B F D"]) -> Float[Tensor, ""]:
    """The mean square by which latents differ from those of exact arithmetic, over the variance of the latter.

    A predictor's error is measured against the same variance: a gap that is not small beside it makes a model that
    predicts well in the arithmetic of training plan badly in another.
    """
    exact = at_least_float32(exact.detach()).flatten(0, 1)
    gap: Tensor = (s.detach().flatten(0, 1) - exact).square().mean() / exact.var(0, correction=0).mean()
    return gap


@torch.no_grad()
def recalibrate(
    model: WorldModel,
    objective: Objective,
    windows: Iterable[WindowBatch],
    streams: RandomStreams,
    device: torch.device,
    *,
    dtype: torch.dtype | None = None,
) -> None:
    """Set the running moments of every BatchNorm to their means over the batches of `windows`; no batch, no change.

    Running statistics lag the weights by about ten updates. At a high learning rate this lag spoils predictions that
    are good with batch statistics. Capacities are sampled as in training, so that the statistics are those of the same
    mixture. Dropout is off, as at inference.
    """
    norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
    usual, was_training = [norm.momentum for norm in norms], model.training
    model.train()
    try:
        for number, batch in enumerate(windows, start=1):
            for norm in norms:
                norm.momentum = 1 / number  # a cumulative mean; the first batch replaces the old statistics
            pixels, actions = batch.to(device)
            noise = streams.draw_step(model, len(pixels), actions.shape[1], drops=False)
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                objective(model, pixels, actions, noise, streams.directions)
    finally:
        for norm, momentum in zip(norms, usual, strict=True):
            norm.momentum = momentum
        model.train(was_training)


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
    """Results of one validation pass."""

    means: RunningMeans = field(default_factory=RunningMeans)
    """Means of losses and q over all windows and ranks."""
    q: list[Float[Tensor, "B C"]] = field(default_factory=list)
    """Capacity probabilities of this rank's windows; only with `shows`."""
    precision_gap: float | None = None
    """How far latents of the first batch are from those of float32, in which planning encodes; of mixed precision."""
    picture: UInt8[Tensor, "rows columns 3"] | None = None
    """Frames and imagined frames of the first windows; only with `shows`."""


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
