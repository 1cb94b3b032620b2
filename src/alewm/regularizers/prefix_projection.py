"""Projections of every prefix of a latent at the price of one matrix product."""

import torch

from alewm.capacity.support import CapacitySupport
from alewm.shapes import Float, Tensor


def prefix_projections(
    s: Float[Tensor, "*batch N D"], u: Float[Tensor, "*#batch D P"], support: CapacitySupport
) -> Float[Tensor, "*batch N C P"]:
    """uᵀ M_k s for every capacity k: each block of coordinates is projected once, then accumulated."""
    s_blocks = torch.split(s, list(support.block_sizes), dim=-1)
    u_blocks = torch.split(u, list(support.block_sizes), dim=-2)
    running: Tensor | None = None
    prefixes = []
    for s_block, u_block in zip(s_blocks, u_blocks, strict=True):
        projected = s_block @ u_block
        running = projected if running is None else running + projected
        prefixes.append(running)
    return torch.stack(prefixes, dim=-2)


def masked_prefix_projections(
    s: Float[Tensor, "*batch N D"], u: Float[Tensor, "*#batch D P"], masks: Float[Tensor, "C D"]
) -> Float[Tensor, "*batch N C P"]:
    """The same by the definition: mask, then project. The reference for the accumulation above."""
    return (s.unsqueeze(-2) * masks) @ u.unsqueeze(-3)
