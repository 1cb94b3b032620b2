"""How a latent uses its width: effective rank, and variance under the mask."""

import torch

from alewm.capacity.prior import survival
from alewm.capacity.support import CapacitySupport
from alewm.regularizers.precision import at_least_float32
from alewm.shapes import Float, Tensor
from alewm.training.ranks import detached_mean


def effective_rank(s: Float[Tensor, "B F D"]) -> Float[Tensor, ""]:
    """exp of the entropy of the covariance's normalised eigenvalues; D for an isotropic latent, 1 for a line."""
    rows = at_least_float32(s.detach()).flatten(0, 1)
    mean = detached_mean(rows.mean(0))
    centred = rows - mean
    covariance = detached_mean(centred.mT @ centred / len(rows))
    # Rounding makes tiny eigenvalues negative.
    eigenvalues = torch.linalg.eigvalsh(covariance).clamp(min=0)
    shares = eigenvalues / eigenvalues.sum().clamp(min=torch.finfo(eigenvalues.dtype).tiny)
    rank: Tensor = torch.special.entr(shares).sum().exp()
    return rank


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
