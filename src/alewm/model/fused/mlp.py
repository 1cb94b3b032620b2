"""An MLP whose GELU, there and back, is computed where the product beside it is: two kernels among library products.

Forward, one kernel writes h = x w1ᵀ + b1 and a = GELU(h), both kept; backward, one writes the gradient of h and its sum
over rows without the gradient of a ever leaving the chip. The other products are the library's. Sums over rows are made
of one partial sum per block of rows, in a fixed order.
"""

from typing import Any

import torch
import torch.nn.functional as F
import triton

from alewm.model.fused import mlp_kernels
from alewm.model.fused.tiles import Tile, tile_of
from alewm.model.fused.widths import two_parts
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
    """y, h and a, all [rows, ...]."""
    h, a = run_widen(x, w1, b1)
    return F.linear(a, w2), h, a


@torch.library.custom_op("alewm::narrow_backward", mutates_args=())
def _narrow_backward(grad_y: Tensor, w2: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    return run_narrow_backward(grad_y, w2, h)


def run_widen(x: Tensor, w1: Tensor, b1: Tensor, tile: Tile | None = None) -> tuple[Tensor, Tensor]:
    """h = x w1ᵀ + b1, rounded, and GELU(h), by one kernel."""
    num_rows, width = x.shape
    tile = tile or tile_of("widen", len(w1))
    h, a = (w1.new_empty(num_rows, len(w1)) for _ in range(2))
    mlp_kernels.widen[(triton.cdiv(num_rows, tile.rows) * tile.parts,)](
        x.contiguous(), w1.contiguous(), b1.contiguous(), h, a, num_rows, **_sizes(width, len(w1), tile)
    )
    return h, a


def run_narrow_backward(grad_y: Tensor, w2: Tensor, h: Tensor, tile: Tile | None = None) -> tuple[Tensor, Tensor]:
    """The gradient of h and its sum over rows, that of b1, by one kernel."""
    (num_rows, hidden), width = h.shape, len(w2)
    tile = tile or tile_of("narrow_backward", hidden)
    num_blocks, grad_h = triton.cdiv(num_rows, tile.rows), torch.empty_like(h)
    sums = h.new_empty(num_blocks, hidden, dtype=torch.float32)
    mlp_kernels.narrow_backward[(num_blocks * tile.parts,)](
        grad_y.contiguous(), w2.contiguous(), h, grad_h, sums, num_rows, **_sizes(width, hidden, tile)
    )
    return grad_h, sums.sum(0)


def _sizes(width: int, hidden: int, tile: Tile) -> dict[str, int]:
    left, right = two_parts(width)
    return {
        **{"HIDDEN": hidden, "LEFT": left, "RIGHT": right, "ROWS": tile.rows, "CHUNK": tile.chunk},
        **{"PARTS": tile.parts, "num_warps": tile.warps, "num_stages": tile.stages},
    }


@_mlp.register_fake
def _(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    h, a = (w1.new_empty(len(x), len(w1)) for _ in range(2))
    return w1.new_empty(x.shape), h, a


@_narrow_backward.register_fake
def _(grad_y: Tensor, w2: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(h), h.new_empty(h.shape[1], dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    x, w1, _, w2 = inputs
    ctx.save_for_backward(x, w1, w2, *output[1:])
    ctx.mark_non_differentiable(*output[1:])  # h and a are given out to be kept, and for nothing else
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad_y: Tensor, *_: None) -> tuple[Tensor, ...]:
    """Gradients of all inputs; what is no kernel of ours is a library product."""
    x, w1, w2, h, a = ctx.saved_tensors
    grad_h, grad_b1 = _narrow_backward(grad_y, w2, h)
    return grad_h @ w1, grad_h.mT @ x, grad_b1, grad_y.mT @ a


_mlp.register_autograd(_gradients, setup_context=_keep)
