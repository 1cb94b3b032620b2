"""The attention half of a block around the library's attention: LN with query, key and value, and the output map.

Two operations, each one kernel forward and one backward. The first also passes x on, a copy of it: the gradient of the
stream that goes past attention then arrives in the kernel that adds it, and no pass of its own is needed.
"""

from typing import Any

import torch
import triton

from alewm.model.attention import attend
from alewm.model.fused import attention_kernels
from alewm.model.fused.tiles import Tile, tile_of
from alewm.model.fused.widths import two_parts
from alewm.shapes import Float, Tensor


def attention_half(
    x: Float[Tensor, "N L W"],
    scale: Float[Tensor, "W"],
    shift: Float[Tensor, "W"],
    qkv: tuple[Float[Tensor, "W3 W"], Float[Tensor, "W3"]],
    output: tuple[Float[Tensor, "W W"], Float[Tensor, "W"]],
    num_heads: int,
    *,
    eps: float,
    dtype: torch.dtype,
) -> Float[Tensor, "N L W"]:
    """x + output(attention(LN(x))) with products in `dtype`; `qkv` and `output` are weight and bias."""
    weight, bias = qkv
    *maps, stream = _qkv(x.contiguous(), scale, shift, weight.to(dtype), bias, eps)
    query, key, value = (mapped.unflatten(-1, (num_heads, -1)).transpose(1, 2) for mapped in maps)
    attended = attend(query, key, value).transpose(1, 2).flatten(2)
    y: Tensor = _project(attended.contiguous(), output[0].to(dtype), output[1], stream)
    return y


@torch.library.custom_op("alewm::qkv", mutates_args=())
def _qkv(
    x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return run_qkv(x, scale, shift, weight, bias, eps)


@torch.library.custom_op("alewm::qkv_backward", mutates_args=())
def _qkv_backward(
    grad_query: Tensor,
    grad_key: Tensor,
    grad_value: Tensor,
    grad_stream: Tensor,
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return run_qkv_backward(grad_query, grad_key, grad_value, grad_stream, x, scale, shift, weight, eps)


@torch.library.custom_op("alewm::project", mutates_args=())
def _project(attended: Tensor, weight: Tensor, bias: Tensor, stream: Tensor) -> Tensor:
    return run_project(attended, weight, bias, stream)


@torch.library.custom_op("alewm::project_backward", mutates_args=())
def _project_backward(grad_y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return run_project_backward(grad_y, weight)


def run_qkv(
    x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, eps: float, tile: Tile | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, key, value and a copy of x, by one kernel."""
    cut = _Cut("qkv_forward", x, tile)
    query, key, value = (torch.empty_like(x, dtype=weight.dtype) for _ in range(3))
    stream = torch.empty_like(x)
    attention_kernels.qkv_forward[cut.grid](
        x, scale, shift, weight.contiguous(), bias.contiguous(), query, key, value, stream, cut.num_rows, eps,
        **cut.options,
    )  # fmt: skip
    return query, key, value, stream


def run_qkv_backward(
    grad_query: Tensor,
    grad_key: Tensor,
    grad_value: Tensor,
    grad_stream: Tensor,
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Tensor,
    eps: float,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of x, LN(x), and the gradients of scale, shift and bias side by side, by one kernel."""
    cut = _Cut("qkv_backward", x, tile)
    grad_x, xn = torch.empty_like(x), torch.empty_like(x, dtype=weight.dtype)
    sums = x.new_empty(*cut.grid, 5 * cut.width)
    attention_kernels.qkv_backward[cut.grid](
        x, scale, shift, weight.contiguous(), grad_query.contiguous(), grad_key.contiguous(), grad_value.contiguous(),
        grad_stream.contiguous(), grad_x, xn, sums, cut.num_rows, eps, **cut.options,
    )  # fmt: skip
    return grad_x, xn, sums.sum(0)


def run_project(attended: Tensor, weight: Tensor, bias: Tensor, stream: Tensor, tile: Tile | None = None) -> Tensor:
    """The stream with the output map of `attended` added, by one kernel."""
    cut, y = _Cut("project_forward", stream, tile), torch.empty_like(stream)
    attention_kernels.project_forward[cut.grid](
        attended, weight.contiguous(), bias, stream, y, cut.num_rows, **cut.options
    )
    return y


def run_project_backward(grad_y: Tensor, weight: Tensor, tile: Tile | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of what was mapped, grad_y rounded, and the gradient of the bias, by one kernel."""
    cut, grad_y = _Cut("project_backward", grad_y, tile), grad_y.contiguous()
    grad_attended, rounded = (torch.empty_like(grad_y, dtype=weight.dtype) for _ in range(2))
    sums = grad_y.new_empty(*cut.grid, cut.width)
    attention_kernels.project_backward[cut.grid](
        grad_y, weight.contiguous(), grad_attended, rounded, sums, cut.num_rows, **cut.options
    )
    return grad_attended, rounded, sums.sum(0)


class _Cut:
    """How a kernel's rows are cut."""

    def __init__(self, kernel: str, rows: Tensor, tile: Tile | None = None) -> None:
        self.width = rows.shape[-1]
        self.num_rows = rows.numel() // self.width
        tile = tile or tile_of(kernel, self.width, self.width)
        self.grid = (triton.cdiv(self.num_rows, tile.rows),)
        left, right = two_parts(self.width)
        self.options = {
            **{"LEFT": left, "RIGHT": right, "ROWS": tile.rows, "CHUNK": tile.chunk},
            **{"num_warps": tile.warps, "num_stages": tile.stages},
        }


@_qkv.register_fake
def _(
    x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key, value = (torch.empty_like(x, dtype=weight.dtype) for _ in range(3))
    return query, key, value, torch.empty_like(x)


@_qkv_backward.register_fake
def _(
    grad_query: Tensor,
    grad_key: Tensor,
    grad_value: Tensor,
    grad_stream: Tensor,
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=weight.dtype), x.new_empty(5 * x.shape[-1])


@_project.register_fake
def _(attended: Tensor, weight: Tensor, bias: Tensor, stream: Tensor) -> Tensor:
    return torch.empty_like(stream)


@_project_backward.register_fake
def _(grad_y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    grad_attended, rounded = (torch.empty_like(grad_y.contiguous(), dtype=weight.dtype) for _ in range(2))
    return grad_attended, rounded, grad_y.new_empty(grad_y.shape[-1])


def _keep_qkv(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, scale, shift, weight, _, ctx.eps = inputs
    ctx.save_for_backward(x, scale, shift, weight)


def _qkv_gradients(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    W = grads[0].shape[-1]
    grad_x, xn, sums = _qkv_backward(*grads, *ctx.saved_tensors, ctx.eps)
    grad_scale, grad_shift, grad_bias = sums.split([W, W, 3 * W])
    rows = xn.reshape(-1, W)
    grad_weight = torch.cat([grad.reshape(-1, W).mT @ rows for grad in grads[:3]])
    return grad_x, grad_scale, grad_shift, grad_weight, grad_bias, None


def _keep_project(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])


def _project_gradients(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
    attended, weight = ctx.saved_tensors
    grad_attended, rounded, grad_bias = _project_backward(grad_y, weight)
    W = grad_y.shape[-1]
    return grad_attended, rounded.reshape(-1, W).mT @ attended.reshape(-1, W), grad_bias, grad_y


_qkv.register_autograd(_qkv_gradients, setup_context=_keep_qkv)
_project.register_autograd(_project_gradients, setup_context=_keep_project)
