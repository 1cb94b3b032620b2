"""Validation: losses on held-out windows, and statistics of the latent.

`recalibrate` recomputes the BatchNorm statistics with the current weights first.
"""

from collections.abc import Iterable
from typing import Any

import torch

from alewm.capacity.support import CapacitySupport, survival
from alewm.devices import at_least_float32
from alewm.distributed import mean_across_ranks
from alewm.model.world_model import BatchNorm, WorldModel
from alewm.shapes import Float, Tensor
from alewm.training.data import WindowBatch
from alewm.training.metrics import RunningMeans
from alewm.training.objective import Losses, Objective
from alewm.training.random_streams import RandomStreams


def covariance_spectrum(rows: Float[Tensor, "N D"]) -> Float[Tensor, "D"]:
    """Eigenvalues of the covariance (divisor N) of all ranks' rows, largest first."""
    rows = at_least_float32(rows.detach())
    centred = rows - mean_across_ranks(rows.mean(0))
    covariance = mean_across_ranks(centred.mT @ centred / len(rows))
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
    return mean_across_ranks((rows - mean_across_ranks(rows.mean(0))).square().mean(0))


def masked_variance(s: Float[Tensor, "B F D"], q: Float[Tensor, "B C"], support: CapacitySupport) -> Float[Tensor, "D"]:
    """The variance of each coordinate when a capacity drawn from q masks it, the paper's v_mix.

    Where the masked latent follows its reference distribution, this equals the prior's survival probability.
    """
    s = at_least_float32(s.detach())
    active = survival(q.detach().to(s.dtype), support)[:, None]
    second = mean_across_ranks((active * s.square()).mean((0, 1)))
    first = mean_across_ranks((active * s).mean((0, 1)))
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
            _losses(model, objective, batch, streams, dtype)
    finally:
        for norm, momentum in zip(norms, usual, strict=True):
            norm.momentum = momentum
        model.train(was_training)


@torch.no_grad()
def validate(
    model: WorldModel,
    objective: Objective,
    windows: Iterable[WindowBatch],
    streams: RandomStreams,
    *,
    dtype: torch.dtype | None = None,
) -> dict[str, Any]:
    """Mean losses and q of all windows and ranks, with running moments, no dropout and the noise of `streams`.

    With the `dtype` of mixed precision, also the `precision_gap` of the first batch: planning encodes in float32.
    """
    means, gap = RunningMeans(), dict[str, float]()
    model.eval()
    for batch in windows:
        pixels, losses = _losses(model, objective, batch, streams, dtype)
        if dtype is not None and not gap:
            gap["precision_gap"] = precision_gap(losses.latents, model.encode(pixels).latents).item()
        means.add({"loss": losses.total, **losses.terms, "q": losses.q.mean(0), "q_entropy": mean_entropy(losses.q)})
    model.train()
    return {**means.take(), **gap}


def _losses(
    model: WorldModel,
    objective: Objective,
    batch: WindowBatch,
    streams: RandomStreams,
    dtype: torch.dtype | None,
) -> tuple[Tensor, Losses]:
    """The pixels of a batch on the device of `streams`, and its losses without dropout."""
    device = streams.directions.device
    pixels, actions = batch.to(device)
    noise = streams.draw_step(model, len(pixels), actions.shape[1], drops=False)
    with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
        return pixels, objective(model, pixels, actions, noise, streams.directions)
