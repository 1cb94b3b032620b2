"""The fixed prior π_0 over capacities and its survival probabilities."""

import math
from collections.abc import Sequence
from statistics import fmean

import torch

from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError
from alewm.shapes import Float, Tensor


def log_polynomial_prior(
    num_capacities: int, degree: float, *, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "C"]:
    """log π_0(k_c; α) for w_α(k_c) = (C - c + 1)^α, the paper's eq. (2).

    A positive degree α favours small capacities, a negative one large. Computed in logarithms and in float64, so that
    no degree overflows: a degree of 1,000 is simply all mass on one capacity.
    """
    if num_capacities < 1:
        raise InputError(f"A prior needs at least one capacity, got {num_capacities}.")
    if not math.isfinite(degree):
        raise InputError(f"The prior's degree must be finite, got {degree}.")
    mirrored_rank = torch.arange(num_capacities, 0, -1, dtype=torch.float64)
    return (degree * mirrored_rank.log()).log_softmax(-1).to(dtype)


def polynomial_prior(num_capacities: int, degree: float, *, dtype: torch.dtype = torch.float32) -> Float[Tensor, "C"]:
    """π_0(k_c; α), summing to one."""
    return log_polynomial_prior(num_capacities, degree, dtype=torch.float64).exp().to(dtype)


def survival(probabilities: Float[Tensor, "*batch C"], support: CapacitySupport) -> Float[Tensor, "*batch D"]:
    """ρ^j = Pr(K ≥ j) for every coordinate j, the probability that it is active."""
    at_block = probabilities.flip(-1).cumsum(-1).flip(-1)
    sizes = torch.tensor(support.block_sizes, device=probabilities.device)
    return at_block.repeat_interleave(sizes, dim=-1, output_size=support.latent_dim)


def distance_from_survival(masked_variance: Sequence[float], prior_survival: Sequence[float]) -> float:
    """The mean over coordinates of |masked variance - ρ|; zero where the masked latent matches its target."""
    return fmean(abs(v - rho) for v, rho in zip(masked_variance, prior_survival, strict=True))
