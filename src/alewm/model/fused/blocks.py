"""Fused half-blocks in the place of an encoder's plain ones; parameters keep their names, places and gradients."""

from typing import Literal

import torch

from alewm.model.fused.attention import attention_half
from alewm.model.fused.mlp import mlp_half
from alewm.model.vit import PLAIN_HALVES, Halves, ViT, ViTBlock, plain_attention_half, plain_mlp_half
from alewm.shapes import Float, Tensor


def fuse_blocks(encoder: ViT, which: Literal["mlp", "both"]) -> None:
    """Compute the MLP halves of all blocks, or both halves, by fused kernels from now on."""
    attention = fused_attention_half if which == "both" else PLAIN_HALVES.attention
    halves = Halves(attention, fused_mlp_half)
    for block in encoder.blocks:
        assert isinstance(block, ViTBlock)
        block.halves = halves


def fused_mlp_half(block: ViTBlock, x: Float[Tensor, "N L W"]) -> Float[Tensor, "N L W"]:
    """x with what the block's MLP adds to it."""
    dtype = _dtype_of_products(x)
    if not _suits(x, dtype):
        return plain_mlp_half(block, x)
    norm, widen, narrow = block.norm_mlp, block.mlp.widen, block.mlp.narrow
    maps = (widen.weight, widen.bias, narrow.weight, narrow.bias)
    return mlp_half(x, norm.weight, norm.bias, *maps, eps=norm.eps, dtype=dtype)


def fused_attention_half(block: ViTBlock, x: Float[Tensor, "N L W"]) -> Float[Tensor, "N L W"]:
    """x with what the block's attention adds to it."""
    dtype = _dtype_of_products(x)
    if not _suits(x, dtype):
        return plain_attention_half(block, x)
    norm, attention = block.norm_attention, block.attention
    maps = (attention.query, attention.key, attention.value)
    return attention_half(
        x,
        norm.weight,
        norm.bias,
        (torch.cat([m.weight for m in maps]), torch.cat([m.bias for m in maps])),
        (attention.output.weight, attention.output.bias),
        attention.num_heads,
        eps=norm.eps,
        dtype=dtype,
    )


def _dtype_of_products(x: Tensor) -> torch.dtype:
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _suits(x: Tensor, dtype: torch.dtype) -> bool:
    # In float32 the tiles do not fit on a GPU; in Triton's interpreter, where there is no chip, everything fits.
    return x.dtype == torch.float32 and (dtype == torch.bfloat16 or not x.is_cuda)
