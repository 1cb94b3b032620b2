"""Random unit directions, the slices along which a distribution is compared."""

from typing import Literal

import torch

from alewm.capacity.prefix import prefix_masks
from alewm.capacity.support import CapacitySupport
from alewm.shapes import Float, Tensor

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
