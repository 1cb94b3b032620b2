"""The MLP half of a block, y = x + narrow(GELU(widen(LN(x)))), as one kernel forward and one backward.

Kept for the backward pass is x alone, which the residual stream keeps anyway. Products are in the dtype of the weights,
everything else in float32. Sums over rows are made of one partial sum per program, in a fixed order.
"""

from typing import Any

import torch
import triton

from alewm.model.fused import mlp_kernels
from alewm.model.fused.tiles import Tile, tile_of
from alewm.model.fused.widths import two_parts
from alewm.shapes import Float, Tensor


def mlp_half(
    x: Float[Tensor, "*batch W"],
    scale: Float[Tensor, "W"],
    shift: Float[Tensor, "W"],
    w1: Float[Tensor, "hidden W"],
    b1: Float[Tensor, " hidden"],
    w2: Float[Tensor, "W hidden"],
    b2: Float[Tensor, "W"],
    *,
    eps: float,
    dtype: torch.dtype,
) -> Float[Tensor, "*batch W"]:
    """x + narrow(GELU(widen(LN(x)))) with products in `dtype`; x, norm and biases are float32."""
    y: Tensor = _mlp_half(x.contiguous(), scale, shift, w1.to(dtype), b1, w2.to(dtype), b2, eps)
    return y


@torch.library.custom_op("alewm::mlp_half", mutates_args=())
def _mlp_half(
    x: Tensor, scale: Tensor, shift: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, eps: float
) -> Tensor:
    return run_forward(x, scale, shift, w1, b1, w2, b2, eps)


@torch.library.custom_op("alewm::mlp_half_backward", mutates_args=())
def _mlp_half_backward(
    grad_y: Tensor, x: Tensor, scale: Tensor, shift: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return run_backward(grad_y, x, scale, shift, w1, b1, w2, eps)


def run_forward(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    eps: float,
    tile: Tile | None = None,
) -> Tensor:
    """y, by one kernel."""
    hidden, W = w1.shape
    num_rows, (left, right) = x.numel() // W, two_parts(W)
    tile = tile or tile_of("mlp_forward", W, hidden)
    y = torch.empty_like(x)
    mlp_kernels.mlp_forward[(triton.cdiv(num_rows, tile.rows),)](
        x, scale, shift, w1.contiguous(), b1, w2.contiguous(), b2, y, num_rows, eps,
        HIDDEN=hidden, LEFT=left, RIGHT=right, ROWS=tile.rows, CHUNK=tile.chunk,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return y


def run_backward(
    grad_y: Tensor,
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    eps: float,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradient of x, by one kernel, with the factors of the weights' gradients and all sums over rows.

    Returned are grad_x, LN(x), grad_y, GELU(h) and grad_h, each [rows, ...] and rounded but for the first, and the
    gradients of scale, shift, b2 and b1 side by side.
    """
    hidden, W = w1.shape
    num_rows, (left, right) = x.numel() // W, two_parts(W)
    tile = tile or tile_of("mlp_backward", W, hidden)
    num_programs = triton.cdiv(num_rows, tile.rows)
    grad_x = torch.empty_like(x)
    xn, rounded = (w1.new_empty(num_rows, W) for _ in range(2))
    a, grad_h = (w1.new_empty(num_rows, hidden) for _ in range(2))
    sums = x.new_empty(num_programs, 3 * W + hidden)
    mlp_kernels.mlp_backward[(num_programs,)](
        x, scale, shift, w1.contiguous(), b1, w2.contiguous(), grad_y.contiguous(),
        grad_x, xn, rounded, a, grad_h, sums, num_rows, eps,
        HIDDEN=hidden, LEFT=left, RIGHT=right, ROWS=tile.rows, CHUNK=tile.chunk,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return grad_x, xn, rounded, a, grad_h, sums.sum(0)


@_mlp_half.register_fake
def _(x: Tensor, scale: Tensor, shift: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x)


@_mlp_half_backward.register_fake
def _(
    grad_y: Tensor, x: Tensor, scale: Tensor, shift: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    hidden, W = w1.shape
    num_rows = x.numel() // W
    narrow, wide = (num_rows, W), (num_rows, hidden)
    factors = (w1.new_empty(narrow), w1.new_empty(narrow), w1.new_empty(wide), w1.new_empty(wide))
    return torch.empty_like(x), *factors, x.new_empty(3 * W + hidden)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, scale, shift, w1, b1, w2, _, ctx.eps = inputs
    ctx.save_for_backward(x, scale, shift, w1, b1, w2)


def _gradients(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of all inputs; those of the weights are library products, as in the plain path."""
    W = grad_y.shape[-1]
    grad_x, xn, rounded, a, grad_h, sums = _mlp_half_backward(grad_y, *ctx.saved_tensors, ctx.eps)
    grad_scale, grad_shift, grad_b2, grad_b1 = sums.split([W, W, W, grad_h.shape[1]])
    return grad_x, grad_scale, grad_shift, grad_h.mT @ xn, grad_b1, rounded.mT @ a, grad_b2, None


_mlp_half.register_autograd(_gradients, setup_context=_keep)
