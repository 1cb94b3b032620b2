"""Attention among the tokens of an image, one kernel forward and two backward between library products.

Library kernels round 257 tokens up to whole tiles, and give gradients that are copied together and added up afterwards;
these write the gradient as the map before them made its outputs, and its sum over tokens with it.
"""

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from alewm.kernels import image_attention_kernels as kernels
from alewm.kernels.tiles import Tile, tile_of
from alewm.shapes import Float, Tensor


def attention(
    x: Float[Tensor, "N L W"], weight: Float[Tensor, "W3 W"], bias: Float[Tensor, "W3"], num_heads: int
) -> Float[Tensor, "N L W"]:
    """Self-attention among the tokens of each image, without a mask; heads are concatenated, dtype is that of x.

    `weight` and `bias` map to queries, keys and values, in that order, each by head.
    """
    mixed: Tensor = _attention(x.contiguous(), weight.to(x.dtype), bias, num_heads)[0]
    return mixed


@torch.library.custom_op("alewm::attention", mutates_args=())
def _attention(x: Tensor, weight: Tensor, bias: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    qkv = F.linear(x, weight, bias.to(x.dtype))
    return *run_attention(qkv, num_heads), qkv


@torch.library.custom_op("alewm::attention_backward", mutates_args=())
def _attention_backward(
    grad_mixed: Tensor, qkv: Tensor, mixed: Tensor, lse: Tensor, num_heads: int
) -> tuple[Tensor, Tensor]:
    return run_attention_backward(grad_mixed, qkv, mixed, lse, num_heads)


def run_attention(qkv: Tensor, num_heads: int, tile: Tile | None = None) -> tuple[Tensor, Tensor]:
    """What every token reads, and the log-sum-exp of its scores in base two, by one kernel."""
    sizes, (N, L, W) = _sizes(qkv, num_heads), _shape(qkv)
    tile = _tile_within(tile or tile_of("attention", L - 1), L - 1)
    mixed, lse = qkv.new_empty(N, L, W), qkv.new_empty(N, num_heads, L, dtype=torch.float32)
    kernels.image_attention_forward[((L - 1) // tile.rows + 1, N * num_heads)](
        qkv, mixed, lse, _scales(sizes["HEAD"])[0], **sizes, ROWS=tile.rows, CHUNK=tile.chunk,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return mixed, lse


def run_attention_backward(
    grad_mixed: Tensor, qkv: Tensor, mixed: Tensor, lse: Tensor, num_heads: int, tile: Tile | None = None
) -> tuple[Tensor, Tensor]:
    """The gradient of `qkv` and its sum over tokens, by a kernel for all that involves the first token and another."""
    sizes, (N, L, _) = _sizes(qkv, num_heads), _shape(qkv)
    tile = _tile_within(tile or tile_of("attention_backward", L - 1), L - 1)
    grad_mixed = grad_mixed.contiguous()
    grad_qkv, beside, sums = run_first_token_backward(grad_mixed, qkv, mixed, lse, num_heads)
    kernels.patches_backward[(N * num_heads,)](
        qkv, lse, grad_mixed, beside, grad_qkv, sums, *_scales(sizes["HEAD"]), **sizes, ROWS=tile.rows,
        CHUNK=tile.chunk, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return grad_qkv, sums.sum(0).flatten()


def run_first_token_backward(
    grad_mixed: Tensor, qkv: Tensor, mixed: Tensor, lse: Tensor, num_heads: int, tile: Tile | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of `qkv` with the first token's part in it, what patches need, and sums but for the queries'."""
    sizes, (N, L, _) = _sizes(qkv, num_heads), _shape(qkv)
    tile = tile or tile_of("first_token_backward", L - 1)
    grad_qkv, beside = torch.empty_like(qkv), lse.new_empty(N, num_heads, 4, L - 1)
    sums = lse.new_empty(N, 3, num_heads, sizes["HEAD"])
    kernels.first_token_backward[(2, N * num_heads)](
        qkv, mixed, lse, grad_mixed, grad_qkv, beside, sums, *_scales(sizes["HEAD"]), **sizes, CHUNK=tile.chunk,
        STAGES=tile.stages, num_warps=tile.warps,
    )  # fmt: skip
    return grad_qkv, beside, sums


def _tile_within(tile: Tile, num_patches: int) -> Tile:
    """The tile with no more rows than there are patches."""
    return replace(tile, rows=min(tile.rows, num_patches))


def _shape(qkv: Tensor) -> tuple[int, int, int]:
    N, L, stacked = qkv.shape
    return N, L, stacked // 3


def _sizes(qkv: Tensor, num_heads: int) -> dict[str, int]:
    _, L, W = _shape(qkv)
    return {"HEADS": num_heads, "HEAD": W // num_heads, "PATCHES": L - 1}


def _scales(head_width: int) -> tuple[float, float]:
    """By which scores are multiplied: for powers of two, and for powers of e."""
    slope = 1 / math.sqrt(head_width)
    return math.log2(math.e) * slope, slope


@_attention.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    N, L, W = x.shape
    return torch.empty_like(x), x.new_empty(N, num_heads, L, dtype=torch.float32), x.new_empty(N, L, 3 * W)


@_attention_backward.register_fake
def _(grad_mixed: Tensor, qkv: Tensor, mixed: Tensor, lse: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(qkv), lse.new_empty(qkv.shape[-1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, weight, _, ctx.num_heads = inputs
    mixed, lse, qkv = output
    ctx.save_for_backward(x, weight, qkv, mixed, lse)
    ctx.mark_non_differentiable(lse, qkv)  # output only to be saved for the backward pass
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad_mixed: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    x, weight, *kept = ctx.saved_tensors
    grad_qkv, grad_bias = _attention_backward(grad_mixed, *kept, ctx.num_heads)
    grad_weight = grad_qkv.flatten(0, 1).mT @ x.flatten(0, 1)
    return grad_qkv @ weight, grad_weight, grad_bias, None


_attention.register_autograd(_gradients, setup_context=_keep)
