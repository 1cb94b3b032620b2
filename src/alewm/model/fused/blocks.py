"""Fused kernels in the place of plain halves of an encoder's blocks; parameters keep names, places and gradients."""

from collections.abc import Mapping
from typing import Literal

import torch

from alewm.model.fused.mlp import mlp
from alewm.model.vit import MLP, Halves, ViT, ViTBlock, as_written
from alewm.shapes import Float, Tensor

Which = Literal["mlp"]
"""What can be fused."""


def fuse_blocks(encoder: ViT, which: Which) -> None:
    """Compute these halves of all blocks by fused kernels from now on."""
    for block in encoder.blocks:
        assert isinstance(block, ViTBlock)
        block.halves = FUSED_HALVES[which]


def fused_mlp(module: MLP, x: Float[Tensor, "*batch W"]) -> Float[Tensor, "*batch W"]:
    """The MLP of every token, rounded like a plain one, which takes over where the kernels cannot."""
    dtype = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
    # In float32 the tiles do not fit on a GPU; Triton's interpreter has no chip to fit on, and no bfloat16.
    if dtype not in ((torch.bfloat16,) if x.is_cuda else (torch.float32, torch.float16)):
        return as_written(module, x)
    return mlp(x, module.widen.weight, module.widen.bias, module.narrow.weight, module.narrow.bias, dtype)


FUSED_HALVES: Mapping[Which, Halves] = {"mlp": Halves(mlp=fused_mlp)}
"""How a block computes its halves under each name."""
