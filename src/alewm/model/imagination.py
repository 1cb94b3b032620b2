"""Rolling a predictor forward on its own predictions without computing anything twice.

While the history grows, every position keeps its place: a new one reads the keys and values of those before it, which
are remembered. Once the history slides, all its positions have moved and are computed anew. Of the last block only the
last position is computed, since only its prediction is used; and each action block is encoded once.
"""

import torch
import torch.nn.functional as F

from alewm.errors import InputError
from alewm.model.predictor import AdaLNBlock, Memory, Predictor
from alewm.model.projector import Projector
from alewm.shapes import Float, Tensor

LONGEST_FAST_CONTEXT = 3
"""Positions that the kernels of `fast_imagination` are written for."""


def imagine(
    predictor: Predictor,
    projector: Projector,
    z_first: Float[Tensor, "N k"],
    condition: Float[Tensor, "N H W"],
    *,
    last_width: int,
    context: int,
) -> list[Float[Tensor, "N _"]]:
    """The H latents that follow `z_first` under H encoded action blocks; k coordinates each, the last `last_width`.

    Equal to H calls of the predictor on the latest `context` latents, up to rounding.
    """
    if not 1 <= context <= predictor.config.context_length:
        raise InputError(f"The predictor sees 1 to {predictor.config.context_length} positions, got {context}.")
    capacity, horizon = z_first.shape[1], condition.shape[1]
    activated = F.silu(condition)
    embedded = [predictor.embed(z_first[:, None])]
    memories: list[Memory | None] = [None] * len(predictor.blocks)
    latents: list[Tensor] = []
    for t in range(horizon):
        if t < context:
            seen, place = slice(t, t + 1), slice(t, t + 1)
        else:
            seen, place = slice(t + 1 - context, t + 1), slice(0, context)
            memories = [None] * len(predictor.blocks)
        x = torch.cat(embedded[seen], 1) + predictor.position[:, place]
        hidden = _last_position(predictor, x, activated[:, seen], memories)
        is_last = t == horizon - 1
        z = projector(predictor.norm(hidden), last_width if is_last else capacity)
        latents.append(z[:, 0])
        if not is_last:
            embedded.append(predictor.embed(z))
    return latents


def _last_position(
    predictor: Predictor, x: Float[Tensor, "N T W"], activated: Float[Tensor, "N T W"], memories: list[Memory | None]
) -> Float[Tensor, "N 1 W"]:
    """The last position after all blocks; `memories` gains what each block has read."""
    for i, block in enumerate(predictor.blocks):
        assert isinstance(block, AdaLNBlock)
        num_outputs = 1 if i == len(predictor.blocks) - 1 else x.shape[1]
        x, memories[i] = block.extend(x, activated, memories[i], num_outputs)
    return x
