"""An MLP whose GELU, there and back, is computed where the product beside it is: two kernels among library products.

Forward, one kernel makes h = x w1ᵀ + b1 and writes a = GELU(h) and GELU'(h), both kept: h itself is never written, and
on the way back, where memory is waited for, nothing is left but to multiply. There one kernel writes the gradient of h
and its sum over rows without the gradient of a ever leaving the chip. The other products are the library's. Sums over
rows are made of a few partial sums in a fixed order.
"""

from typing import Any

import torch
import torch.nn.functional as F

from alewm.model.fused.mlp_launches import run_narrow_backward, run_widen
from alewm.shapes import Float, Tensor


def mlp(
    x: Float[Tensor, "*batch W"],
    w1: Float[Tensor, "hidden W"],
    b1: Float[Tensor, " hidden"],
    w2: Float[Tensor, "W hidden"],
) -> Float[Tensor, "*batch W"]:
    """GELU(x w1ᵀ + b1) w2ᵀ in the dtype of x; the second bias is added elsewhere, where its gradient is at hand."""
    y, _, _ = _mlp(x.reshape(-1, x.shape[-1]), w1.to(x.dtype), b1, w2.to(x.dtype))
    shaped: Tensor = y.view(x.shape)
    return shaped


@torch.library.custom_op("alewm::mlp", mutates_args=())
def _mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y, GELU'(h) and a, all [rows, ...]."""
    slope, a = run_widen(x, w1, b1)
    return F.linear(a, w2), slope, a


@torch.library.custom_op("alewm::narrow_backward", mutates_args=())
def _narrow_backward(grad_y: Tensor, w2: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    return run_narrow_backward(grad_y, w2, slope)


@_mlp.register_fake
def _(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    slope, a = (w1.new_empty(len(x), len(w1)) for _ in range(2))
    return w1.new_empty(x.shape), slope, a


@_narrow_backward.register_fake
def _(grad_y: Tensor, w2: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(slope), slope.new_empty(slope.shape[1], dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    x, w1, _, w2 = inputs
    ctx.save_for_backward(x, w1, w2, *output[1:])
    ctx.mark_non_differentiable(*output[1:])  # given out to be kept, and for nothing else
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad_y: Tensor, *_: None) -> tuple[Tensor, ...]:
    """Gradients of all inputs; what is no kernel of ours is a library product."""
    x, w1, w2, slope, a = ctx.saved_tensors
    grad_h, grad_b1 = _narrow_backward(grad_y, w2, slope)
    return grad_h @ w1, grad_h.mT @ x, grad_b1, grad_y.mT @ a


_mlp.register_autograd(_gradients, setup_context=_keep)
