"""The fixed prior π_0 over capacities, its survival probabilities, and prefix lengths drawn within a block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Literal

import torch

from alewm.capacity.prefix import prefix_masks
from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError
from alewm.shapes import Float, Tensor

PriorName = Literal["ranks", "values", "smooth"]
"""`ranks` is the paper's; `values` looks at the capacities themselves; `smooth` has no cliffs (`PrefixLengths`)."""


def log_polynomial_prior(
    num_capacities: int, degree: float, *, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "C"]:
    """log π_0(k_c; α) for w_α(k_c) = (C - c + 1)^α, the paper's eq. (2).

    A positive degree α favours small capacities, a negative one large. Computed in logarithms and in float64, so that
    no degree overflows: a degree of 1,000 is simply all mass on one capacity.
    """
    if num_capacities < 1:
        raise InputError(f"A prior needs at least one capacity, got {num_capacities}.")
    return _log_powers(torch.arange(num_capacities, 0, -1, dtype=torch.float64), degree).to(dtype)


def _log_powers(base: Float[Tensor, "C"], degree: float) -> Float[Tensor, "C"]:
    if not math.isfinite(degree):
        raise InputError(f"The prior's degree must be finite, got {degree}.")
    return (degree * base.log()).log_softmax(-1)


def polynomial_prior(num_capacities: int, degree: float, *, dtype: torch.dtype = torch.float32) -> Float[Tensor, "C"]:
    """π_0(k_c; α), summing to one."""
    return log_polynomial_prior(num_capacities, degree, dtype=torch.float64).exp().to(dtype)


def log_capacity_prior(
    support: CapacitySupport, degree: float, prior: PriorName = "ranks", *, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "C"]:
    """log π_0(k_c; α) of the prior called `prior`.

    The paper's weights are powers of the mirrored rank, 1 + C - c. `values` takes the same powers of the mirrored
    capacity, k_1 + k_C - k_c, and so equals the paper's where k_c = c k_1. `smooth` weighs capacities as the paper
    does; it differs in the prefix lengths a capacity stands for while training.
    """
    if prior != "values":
        return log_polynomial_prior(len(support), degree, dtype=dtype)
    capacities = torch.tensor(support.capacities, dtype=torch.float64)
    return _log_powers(capacities[0] + capacities[-1] - capacities, degree).to(dtype)


def capacity_prior(
    support: CapacitySupport, degree: float, prior: PriorName = "ranks", *, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "C"]:
    """π_0(k_c; α) of the prior called `prior`, summing to one."""
    return log_capacity_prior(support, degree, prior, dtype=torch.float64).exp().to(dtype)


def survival(probabilities: Float[Tensor, "*batch C"], support: CapacitySupport) -> Float[Tensor, "*batch D"]:
    """ρ^j = Pr(K ≥ j) for every coordinate j, the probability that it is active."""
    at_block = probabilities.flip(-1).cumsum(-1).flip(-1)
    sizes = torch.tensor(support.block_sizes, device=probabilities.device)
    return at_block.repeat_interleave(sizes, dim=-1, output_size=support.latent_dim)


def distance_from_survival(masked_variance: Sequence[float], prior_survival: Sequence[float]) -> float:
    """The mean over coordinates of |masked variance - ρ|; zero where the masked latent matches its target."""
    return fmean(abs(v - rho) for v, rho in zip(masked_variance, prior_survival, strict=True))


@dataclass(frozen=True)
class PrefixLengths:
    """The prefix lengths met in training, and how probable each is.

    Where they are `drawn`, capacity k_c stands for a length uniform over its block k_(c-1) + 1, ..., k_c, so that the
    probability of being active falls linearly through a block instead of all at once at its end.
    """

    support: CapacitySupport
    """The capacities to choose from."""
    drawn: bool = False
    """Whether a length is drawn from the chosen capacity's block; otherwise it is the capacity."""

    @cached_property
    def lengths(self) -> CapacitySupport:
        """All lengths there are: the capacities, or 1, ..., D."""
        return CapacitySupport.every(self.support.latent_dim) if self.drawn else self.support

    def probabilities(self, q: Float[Tensor, "*batch C"]) -> Float[Tensor, "*batch K"]:
        """Probability of each of the `lengths` where capacities are distributed as `q`."""
        if not self.drawn:
            return q
        _, block = self._blocks(q)
        return q @ (block / block.sum(-1, keepdim=True))

    def survival(self, q: Float[Tensor, "*batch C"]) -> Float[Tensor, "*batch D"]:
        """ρ^j = Pr(length ≥ j) for every coordinate j."""
        return survival(self.probabilities(q), self.lengths)

    def masks(self, place: Float[Tensor, "B"]) -> Float[Tensor, "B C D"]:
        """Each window's prefix mask per capacity, of length k_(c-1) + 1 + ⌊v b_c⌋ for its `place` v, uniform in [0, 1).

        b_c is the size of the block. All capacities of a window share its place, of which one is used.
        """
        before, block = self._blocks(place)
        steps_into_block = block.cumsum(-1) - 1
        is_reached = steps_into_block <= place[:, None, None] * block.sum(-1, keepdim=True)
        return before + block * is_reached

    def _blocks(self, like: Tensor) -> tuple[Float[Tensor, "C D"], Float[Tensor, "C D"]]:
        """Masks of the coordinates before each capacity's block, and of the block."""
        masks = prefix_masks(self.support, device=like.device, dtype=like.dtype)
        before = masks.roll(1, 0)
        before[0] = 0
        return before, masks - before
