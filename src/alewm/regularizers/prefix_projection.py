"""Projections of latents, and of every prefix of them at the price of about one matrix product."""

import torch

from alewm.capacity.prefix import prefix_masks
from alewm.capacity.support import CapacitySupport
from alewm.shapes import Float, Tensor

_NARROW = 16
"""Up to this width masking each prefix beats accumulating blocks: a product this thin costs no more than writing it."""


def project(s: Float[Tensor, "*batch N D"], u: Float[Tensor, "*#batch D P"]) -> Float[Tensor, "*batch N P"]:
    """uᵀ s. Batch axes that share their directions are folded into one large product instead of many small ones."""
    shared = 0
    while shared < u.ndim - 2 and u.shape[u.ndim - 3 - shared] == 1:
        shared += 1
    own = u.ndim - 2 - shared
    rows, directions = s.flatten(own, -2), u.reshape(*u.shape[:own], *u.shape[-2:])
    return (rows @ directions).view(*s.shape[:-1], u.shape[-1])


def prefix_projections(
    s: Float[Tensor, "*batch N D"], u: Float[Tensor, "*#batch D P"], support: CapacitySupport
) -> Float[Tensor, "*batch N C P"]:
    """uᵀ M_k s for every capacity k."""
    if support.latent_dim <= _NARROW:
        return masked_prefix_projections(s, u, support)
    return accumulated_prefix_projections(s, u, support)


def masked_prefix_projections(
    s: Float[Tensor, "*batch N D"], u: Float[Tensor, "*#batch D P"], support: CapacitySupport
) -> Float[Tensor, "*batch N C P"]:
    """By the definition: mask, then project."""
    masked = s.unsqueeze(-2) * prefix_masks(support, device=s.device, dtype=s.dtype)
    return project(masked.flatten(-3, -2), u).view(*s.shape[:-1], len(support), u.shape[-1])


def accumulated_prefix_projections(
    s: Float[Tensor, "*batch N D"], u: Float[Tensor, "*#batch D P"], support: CapacitySupport
) -> Float[Tensor, "*batch N C P"]:
    """Each block of coordinates is projected once and added to the prefix before it."""
    s_blocks = torch.split(s, list(support.block_sizes), dim=-1)
    u_blocks = torch.split(u, list(support.block_sizes), dim=-2)
    running: Tensor | None = None
    prefixes = []
    for s_block, u_block in zip(s_blocks, u_blocks, strict=True):
        projected = project(s_block, u_block)
        running = projected if running is None else running + projected
        prefixes.append(running)
    return torch.stack(prefixes, dim=-2)
