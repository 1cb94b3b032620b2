"""The capacities a model may use, 𝒦 = {k_1 < ... < k_C = D}: the prior π_0 over them, prefix masks m(k), and sampling.

Coordinate j is kept by capacity k when j ≤ k. The straight-through Gumbel choice of a capacity follows the paper's
appendix on straight-through prefix sampling.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import torch
import torch.nn.functional as F

from alewm.errors import InputError
from alewm.shapes import Float, Int, Tensor


@dataclass(frozen=True)
class CapacitySupport:
    """Strictly increasing positive capacities; the last is the latent width D."""

    capacities: tuple[int, ...]

    def __post_init__(self) -> None:
        ks = self.capacities
        if not isinstance(ks, tuple) or not all(type(k) is int for k in ks):
            raise InputError(f"A capacity support is a tuple of integers, got {ks!r}.")
        if not ks or ks[0] < 1 or any(a >= b for a, b in pairwise(ks)):
            raise InputError(f"Capacities must be positive and strictly increasing, got {ks}.")

    @classmethod
    def every(cls, latent_dim: int) -> "CapacitySupport":
        """The support {1, ..., D}."""
        return cls(tuple(range(1, latent_dim + 1)))

    @classmethod
    def full(cls, latent_dim: int) -> "CapacitySupport":
        """The support {D}: no choice at all, which is LeWM."""
        return cls((latent_dim,))

    def of_width(self, latent_dim: int) -> "CapacitySupport":
        """This support, checked to end in `latent_dim`."""
        if self.latent_dim != latent_dim:
            raise InputError(
                f"The support {self.capacities} ends in {self.latent_dim}, but the latent has {latent_dim} "
                f"coordinates; its largest capacity must be the latent width."
            )
        return self

    def __len__(self) -> int:
        return len(self.capacities)

    @property
    def latent_dim(self) -> int:
        """D, the largest capacity."""
        return self.capacities[-1]

    @cached_property
    def block_sizes(self) -> tuple[int, ...]:
        """How many coordinates each capacity adds to the one before it."""
        return tuple(b - a for a, b in pairwise((0, *self.capacities)))

    def index_of(self, capacity: int) -> int:
        """The position c of `capacity` = k_c."""
        if capacity not in self.capacities:
            raise InputError(f"Capacity {capacity} is not supported; choose one of {self.capacities}.")
        return self.capacities.index(capacity)


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


def prefix_masks(
    support: CapacitySupport, *, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "C D"]:
    """The matrix **M** whose row c is m(k_c). Cached and shared: do not modify."""
    return _cached_masks(support.capacities, torch.device(device or "cpu"), dtype)


@lru_cache(maxsize=64)
def _cached_masks(capacities: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    # Cached: copying the capacities to a GPU at every call would synchronise with the host.
    with torch.inference_mode(False):
        ends = torch.tensor(capacities, device=device)
        coordinates = torch.arange(1, capacities[-1] + 1, device=device)
        return (coordinates <= ends[:, None]).to(dtype)


def mask_of_choice(
    choice: Float[Tensor, "*batch C"], masks: Float[Tensor, "*batch_or_none C D"]
) -> Float[Tensor, "*batch D"]:
    """m = **M**ᵀ χ for a (straight-through) one-hot choice χ; each choice may have masks of its own."""
    return choice @ masks if masks.ndim == 2 else (choice.unsqueeze(-2) @ masks).squeeze(-2)


def modal_index(logits: Float[Tensor, "*batch C"]) -> Int[Tensor, "*batch"]:
    """The index c of the most probable capacity; a tie goes to the smaller one."""
    return logits.argmax(-1)


TEMPERATURE = 0.5
"""η, constant throughout the paper."""


def gumbel_noise(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """g = -log(-log U), with U clamped away from 0 and 1 so that g is finite in `dtype`."""
    uniform = torch.rand(shape, generator=generator, device=generator.device, dtype=dtype)
    limits = torch.finfo(dtype)
    return -(-uniform.clamp(limits.tiny, 1 - limits.eps).log()).log()


def straight_through_choice(
    logits: Float[Tensor, "*batch C"], noise: Float[Tensor, "*batch C"], temperature: float = TEMPERATURE
) -> Float[Tensor, "*batch C"]:
    """χ: exactly one-hot forward, with the gradient of softmax((log q + g) / η).

    `logits` need not be normalised: the log-softmax that turns them into log q is taken here. Written as
    hard + (soft - stopgrad(soft)), whose second term is exactly zero in floating point; the paper's order of the same
    sum leaves rounding errors in the mask.
    """
    perturbed = logits.log_softmax(-1) + noise
    soft = (perturbed / temperature).softmax(-1)
    hard = F.one_hot(perturbed.argmax(-1), logits.shape[-1]).to(soft.dtype)
    return hard + (soft - soft.detach())
