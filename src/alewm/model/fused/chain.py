"""The encoder's blocks one after the other by kernels of our own and library products; nothing is left to a compiler.

A branch is not added to the stream where it was made but where the next one reads it, in the kernel that normalises the
sum (`add_norm`). Parameters keep their names, places and gradients.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F

from alewm.model.fused.add_norm import Branch, add_norm, no_branch
from alewm.model.fused.image_attention import attend_within_images
from alewm.model.fused.mlp import mlp_without_bias
from alewm.model.vit import SelfAttention, ViTBlock
from alewm.shapes import Float, Tensor


def through_blocks(blocks: Iterable[ViTBlock], x: Float[Tensor, "N L W"], dtype: torch.dtype) -> Float[Tensor, "N L W"]:
    """What `blocks` make of x, with products in `dtype`; x and the result are float32."""
    branch = no_branch(x, dtype)
    for block in blocks:
        norm = block.norm_attention
        x, read = add_norm(x, branch, norm.weight, norm.bias, eps=norm.eps)
        branch = _attention_branch(block.attention, read)
        norm = block.norm_mlp
        x, read = add_norm(x, branch, norm.weight, norm.bias, eps=norm.eps)
        widen, narrow = block.mlp.widen, block.mlp.narrow
        branch = Branch(mlp_without_bias(read, widen.weight, widen.bias, narrow.weight), narrow.bias)
    return x + (branch.mapped + branch.bias)


def _attention_branch(attention: SelfAttention, read: Float[Tensor, "N L W"]) -> Branch:
    maps = (attention.query, attention.key, attention.value)
    weight, bias = torch.cat([m.weight for m in maps]), torch.cat([m.bias for m in maps])
    qkv = F.linear(read, weight.to(read.dtype), bias.to(read.dtype))
    mixed = attend_within_images(qkv, attention.num_heads)
    return Branch(F.linear(mixed, attention.output.weight.to(read.dtype)), attention.output.bias)
