"""How a latent uses its width, effective rank and variance under the mask, and what arithmetic does to it."""

import torch

from alewm.capacity.prior import survival
from alewm.capacity.support import CapacitySupport
from alewm.devices import at_least_float32
from alewm.distributed import detached_mean
from alewm.shapes import Float, Tensor


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
    """The variance of each coordinate as it is encoded: that of what the predictor predicts, whatever masks its input.

    Of a coordinate that is rarely active it is larger than the masked variance.
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
