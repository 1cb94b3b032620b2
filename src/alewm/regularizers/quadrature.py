"""The Epps-Pulley integral: knots, weights, target characteristic functions and random directions.

The squared discrepancy is even in τ and the window w(τ) = exp(-τ²/2) is negligible beyond 3, so the integral over the
real line is twice a trapezoidal rule on [0, 3] (the paper's appendix on optimization and regularization).
"""

from dataclasses import dataclass
from typing import Literal

import torch

from alewm.capacity.support import CapacitySupport, prefix_masks
from alewm.errors import InputError
from alewm.shapes import Float, Tensor


@dataclass(frozen=True)
class Quadrature:
    """Knots τ_j = j h for j = 0 ... Q - 1, and the weights of the doubled, windowed trapezoid."""

    num_knots: int = 17
    end: float = 3.0

    def __post_init__(self) -> None:
        if self.num_knots < 2 or not self.end > 0:
            raise InputError(f"A quadrature needs two or more knots on [0, end > 0], got {self}.")

    @property
    def spacing(self) -> float:
        """h, the distance between neighbouring knots."""
        return self.end / (self.num_knots - 1)

    def knots(self, like: Tensor) -> Float[Tensor, "Q"]:
        """τ_j, with the dtype and device of `like`."""
        return torch.arange(self.num_knots, device=like.device, dtype=like.dtype) * self.spacing

    def weights(self, like: Tensor) -> Float[Tensor, "Q"]:
        """a_j w(τ_j) with a_j = 2h inside and h at both ends."""
        weights = 2 * self.spacing * torch.exp(-0.5 * self.knots(like).square())
        weights[0] /= 2
        weights[-1] /= 2
        return weights


EPPS_PULLEY = Quadrature()
"""17 knots on [0, 3], as in the paper and in LeWM."""


def gaussian_cf(knots: Float[Tensor, "Q"]) -> Float[Tensor, "Q"]:
    """exp(-τ²/2), the characteristic function of a standard normal."""
    return torch.exp(-0.5 * knots.square())


def prefix_mixture_target(
    knots: Float[Tensor, "Q"],
    directions: Float[Tensor, "*#batch D P"],
    prior: Float[Tensor, "*#batch C"],
    support: CapacitySupport,
) -> Float[Tensor, "*batch Q P"]:
    """φ_0(τ) = Σ_k π_0(k) exp(-τ² |M_k u|² / 2) along every direction u."""
    masks = prefix_masks(support, device=directions.device, dtype=directions.dtype)
    prefix_square_norm = masks @ directions.square()
    exponent = -0.5 * knots.square()[:, None, None] * prefix_square_norm.unsqueeze(-3)
    return (prior[..., None, :, None] * exponent.exp()).sum(-2)


Directions = Literal["sphere", "prefixes"]
"""Where directions lie: anywhere on the unit sphere of R^D, as in the paper, or each inside a capacity's prefix."""


def random_directions(
    latent_dim: int,
    num_projections: int,
    *,
    generator: torch.Generator,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "D P"]:
    """P directions u, uniform on the unit sphere of R^D, as columns.

    Drawn on the generator's device, so that ranks with equally seeded generators hold the same directions.
    """
    gaussian = torch.randn(latent_dim, num_projections, generator=generator, device=generator.device, dtype=dtype)
    directions: Tensor = gaussian / gaussian.square().sum(0, keepdim=True).sqrt()
    return directions.to(device or generator.device)


def reach_of_directions(support: CapacitySupport, num_projections: int) -> Float[Tensor, "D P"]:
    """Ones where a direction may point: direction p keeps to the prefix of capacity p mod C, so all have equal shares.

    A direction of the sphere has the share k / D of its square in a prefix of k coordinates. Along it a short prefix is
    narrow, and a narrow distribution looks like any other: its characteristic function is nearly one.
    """
    return prefix_masks(support)[torch.arange(num_projections) % len(support.capacities)].T.contiguous()


def within_reach(u: Float[Tensor, "*#batch D P"], reach: Float[Tensor, "*#batch D #P"]) -> Float[Tensor, "*wide D P"]:
    """The directions `u` without what is out of their `reach`, unit vectors again, uniform there."""
    inside = u * reach.to(u.dtype)
    return inside / inside.square().sum(-2, keepdim=True).sqrt()
