"""Attention among the tokens of an image, one kernel forward and two backward; queries, keys, values in one tensor.

Library kernels round 257 tokens up to whole tiles, and give gradients that are copied together afterwards; these write
the gradient as the map before them made its outputs.
"""

import math
from typing import Any

import torch

from alewm.model.fused import image_attention_kernels as kernels
from alewm.model.fused.tiles import Tile, tile_of
from alewm.shapes import Float, Tensor

MOST_PATCHES = 256
"""More would not fit on the chip at once."""


def why_not_attended(num_tokens: int, head_width: int) -> str | None:
    """The reason the kernels cannot attend among so many tokens, or None."""
    patches = num_tokens - 1
    if patches < 64 or patches & (patches - 1) or patches > MOST_PATCHES:
        return f"{num_tokens} tokens are not one more than 64, 128 or 256"
    return None if head_width == 64 else f"heads are {head_width} wide, not 64"


def attend_within_images(qkv: Float[Tensor, "N L W3"], num_heads: int) -> Float[Tensor, "N L W"]:
    """Every token's mixture of its image's values; nothing is masked. Along W3: queries, keys, values, each by head."""
    mixed: Tensor = _image_attention(qkv.contiguous(), num_heads)[0]
    return mixed


@torch.library.custom_op("alewm::image_attention", mutates_args=())
def _image_attention(qkv: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    return run_attention(qkv, num_heads)


@torch.library.custom_op("alewm::image_attention_backward", mutates_args=())
def _image_attention_backward(grad_mixed: Tensor, qkv: Tensor, mixed: Tensor, lse: Tensor, num_heads: int) -> Tensor:
    return run_attention_backward(grad_mixed, qkv, mixed, lse, num_heads)


def run_attention(qkv: Tensor, num_heads: int, tile: Tile | None = None) -> tuple[Tensor, Tensor]:
    """What every token reads, and the log-sum-exp of its scores in base two, by one kernel."""
    sizes, (N, L, W) = _sizes(qkv, num_heads), _shape(qkv)
    tile = tile or tile_of("image_attention", W, L - 1)
    mixed, lse = qkv.new_empty(N, L, W), qkv.new_empty(N, num_heads, L, dtype=torch.float32)
    kernels.image_attention_forward[((L - 1) // tile.rows + 1, N * num_heads)](
        qkv, mixed, lse, _base_two(sizes["HEAD"]), **sizes, ROWS=tile.rows, CHUNK=tile.chunk,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return mixed, lse


def run_attention_backward(
    grad_mixed: Tensor, qkv: Tensor, mixed: Tensor, lse: Tensor, num_heads: int, tile: Tile | None = None
) -> Tensor:
    """The gradient of `qkv`, by a kernel for what involves the first token and one for the rest."""
    sizes, (N, L, W) = _sizes(qkv, num_heads), _shape(qkv)
    tile, grad_mixed = tile or tile_of("image_attention_backward", W, L - 1), grad_mixed.contiguous()
    grad_qkv, beside = torch.empty_like(qkv), lse.new_empty(N, num_heads, 4, L - 1)
    scale, slope = _base_two(sizes["HEAD"]), sizes["HEAD"] ** -0.5
    kernels.first_token_backward[(2, N * num_heads)](
        qkv, mixed, lse, grad_mixed, grad_qkv, beside, scale, slope, **sizes, ROWS=min(64, L - 1), num_warps=4
    )
    kernels.patches_backward[(N * num_heads,)](
        qkv, lse, grad_mixed, beside, grad_qkv, scale, slope, **sizes, ROWS=tile.rows, CHUNK=tile.chunk,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return grad_qkv


def _shape(qkv: Tensor) -> tuple[int, int, int]:
    N, L, stacked = qkv.shape
    return N, L, stacked // 3


def _sizes(qkv: Tensor, num_heads: int) -> dict[str, int]:
    _, L, W = _shape(qkv)
    return {"HEADS": num_heads, "HEAD": W // num_heads, "PATCHES": L - 1}


def _base_two(head_width: int) -> float:
    return math.log2(math.e) / math.sqrt(head_width)


@_image_attention.register_fake
def _(qkv: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    N, L, W = _shape(qkv)
    return qkv.new_empty(N, L, W), qkv.new_empty(N, num_heads, L, dtype=torch.float32)


@_image_attention_backward.register_fake
def _(grad_mixed: Tensor, qkv: Tensor, mixed: Tensor, lse: Tensor, num_heads: int) -> Tensor:
    return torch.empty_like(qkv)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    qkv, ctx.num_heads = inputs
    ctx.save_for_backward(qkv, *output)


def _gradient(ctx: Any, grad_mixed: Tensor, grad_lse: Tensor | None) -> tuple[Tensor, None]:
    return _image_attention_backward(grad_mixed, *ctx.saved_tensors, ctx.num_heads), None


_image_attention.register_autograd(_gradient, setup_context=_keep)
