"""The encoder's blocks one after the other by kernels of our own and library products; nothing is left to a compiler.

A branch is not added to the stream where it was made but where the next one reads it, in the kernel that normalises the
sum (`add_norm`). Parameters keep their names, places and gradients.
"""

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import nn
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from alewm.kernels.add_norm import Branch, add_norm, no_branch
from alewm.kernels.image_attention import attention
from alewm.kernels.mlp import mlp
from alewm.model.vit import SelfAttention, ViT, ViTBlock, ViTConfig, first_token_after
from alewm.shapes import Float, Tensor


def fuse_blocks(encoder: ViT) -> None:
    """Compute the encoder's blocks by these kernels from now on, wherever its products are in their dtype."""
    encoder.first_token = first_token_by_kernels_or_plain


def first_token_by_kernels_or_plain(blocks: Sequence[ViTBlock], x: Float[Tensor, "N L W"]) -> Float[Tensor, "N W"]:
    """The first token after all `blocks`, by the kernels or, in arithmetic they do not have, as they are written."""
    dtype = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
    # In float32 the tiles do not fit on a GPU; Triton's interpreter has no chip to fit on, and no bfloat16.
    if x.dtype != torch.float32 or dtype != (torch.bfloat16 if x.is_cuda else torch.float32):
        return first_token_after(blocks, x)
    *before, last = blocks
    x, read = _read(*_through(before, x, dtype), last.norm_attention)
    token: Tensor = x[:, 0] + last.attention(read, 1)[:, 0]
    mapped: Tensor = last.mlp(last.norm_mlp(token))
    return token + mapped


def why_kernels_fail(config: ViTConfig, device: torch.device) -> str | None:
    """The reason this GPU cannot run the kernels for such blocks, found by running them once; None if it can."""
    block = ViTBlock(config).to(device)
    # One image is enough: no kernel is compiled for a number of rows, so that training compiles none of them again.
    x = torch.zeros(1, config.num_patches + 1, config.hidden_dim, device=device)
    try:
        torch.autograd.grad(through_blocks([block], x, torch.bfloat16).sum(), list(block.parameters()))
    except (OutOfResources, PTXASError, CompilationError) as error:
        return " ".join(str(error).split())[:200]
    return None


def through_blocks(blocks: Iterable[ViTBlock], x: Float[Tensor, "N L W"], dtype: torch.dtype) -> Float[Tensor, "N L W"]:
    """What `blocks` make of x, with products in `dtype`; x and the result are float32."""
    x, branch = _through(blocks, x, dtype)
    return x + (branch.mapped + branch.bias)


def _through(blocks: Iterable[ViTBlock], x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Branch]:
    """The stream after `blocks`, and the last branch, which is still to be added to it."""
    branch = no_branch(x, dtype)
    for block in blocks:
        x, read = _read(x, branch, block.norm_attention)
        branch = _attention_branch(block.attention, read)
        x, read = _read(x, branch, block.norm_mlp)
        widen, narrow = block.mlp.widen, block.mlp.narrow
        branch = Branch(mlp(read, widen.weight, widen.bias, narrow.weight), narrow.bias)
    return x, branch


def _read(x: Tensor, branch: Branch, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    return add_norm(x, branch, norm.weight, norm.bias, eps=norm.eps)


def _attention_branch(module: SelfAttention, read: Float[Tensor, "N L W"]) -> Branch:
    maps = (module.query, module.key, module.value)
    weight, bias = torch.cat([m.weight for m in maps]), torch.cat([m.bias for m in maps])
    mixed = attention(read, weight, bias, module.num_heads)
    return Branch(F.linear(mixed, module.output.weight.to(read.dtype)), module.output.bias)
