"""The residual stream between two branches of a transformer: a branch is added, and the sum normalised for the next.

One kernel forward and one backward. The branch comes without its map's bias, which is added here, so that its gradient
is summed where it is made. The stream is float32; what the next branch reads has the dtype of its products.
"""

from typing import Any, NamedTuple

import torch
import triton

from alewm.kernels import add_norm_kernels
from alewm.kernels.tiles import Tile, tile_of, two_parts
from alewm.shapes import Float, Tensor

_PROCESSORS = 132
"""Of the largest GPUs; a number of programs that is the same everywhere adds sums up in the same order everywhere."""


class Branch(NamedTuple):
    """What is added to the stream: the output of a map and the map's bias."""

    mapped: Float[Tensor, "*batch W"]
    bias: Float[Tensor, "W"]


def no_branch(x: Float[Tensor, "*batch W"], dtype: torch.dtype) -> Branch:
    """Zeros to add where the stream begins: writing and reading them costs less than kernels of another kind."""
    return Branch(torch.zeros_like(x, dtype=dtype), x.new_zeros(x.shape[-1]))


def add_norm(
    x: Float[Tensor, "*batch W"],
    branch: Branch,
    scale: Float[Tensor, "W"],
    shift: Float[Tensor, "W"],
    *,
    eps: float,
) -> tuple[Float[Tensor, "*batch W"], Float[Tensor, "*batch W"]]:
    """The stream with the branch added, and its LayerNorm in the branch's dtype."""
    stream, xn = _add_norm(x.contiguous(), branch.mapped.contiguous(), branch.bias, scale, shift, eps)
    return stream, xn


@torch.library.custom_op("alewm::add_norm", mutates_args=())
def _add_norm(
    x: Tensor, mapped: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    return run_add_norm(x, mapped, bias, scale, shift, eps)


@torch.library.custom_op("alewm::add_norm_backward", mutates_args=())
def _add_norm_backward(
    grad_stream: Tensor, grad_xn: Tensor, stream: Tensor, scale: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return run_add_norm_backward(grad_stream, grad_xn, stream, scale, eps)


def run_add_norm(
    x: Tensor, mapped: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, eps: float, tile: Tile | None = None
) -> tuple[Tensor, Tensor]:
    """The stream and its LayerNorm, by one kernel."""
    W = x.shape[-1]
    tile = tile or tile_of("add_norm", W)
    num_rows, (left, right) = x.numel() // W, two_parts(W)
    stream, xn = torch.empty_like(x), torch.empty_like(mapped)
    add_norm_kernels.add_norm_forward[(triton.cdiv(num_rows, tile.rows),)](
        x, mapped, bias, scale, shift, stream, xn, num_rows, eps,
        LEFT=left, RIGHT=right, ROWS=tile.rows, num_warps=tile.warps,
    )  # fmt: skip
    return stream, xn


def run_add_norm_backward(
    grad_stream: Tensor, grad_xn: Tensor, stream: Tensor, scale: Tensor, eps: float, tile: Tile | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x and of the branch, and those of scale, shift and bias side by side, by one kernel."""
    W = stream.shape[-1]
    tile = tile or tile_of("add_norm_backward", W, resident=True)
    num_rows, (left, right) = stream.numel() // W, two_parts(W)
    num_programs = min(_PROCESSORS * max(1, tile.resident), triton.cdiv(num_rows, tile.rows))
    grad_x, grad_branch = torch.empty_like(stream), torch.empty_like(stream, dtype=grad_xn.dtype)
    sums = stream.new_empty(num_programs, 3 * W)
    add_norm_kernels.add_norm_backward[(num_programs,)](
        stream, scale, grad_stream.contiguous(), grad_xn.contiguous(), grad_x, grad_branch, sums, num_rows, eps,
        LEFT=left, RIGHT=right, ROWS=tile.rows, num_warps=tile.warps,
    )  # fmt: skip
    return grad_x, grad_branch, sums.sum(0)


@_add_norm.register_fake
def _(x: Tensor, mapped: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(mapped)


@_add_norm_backward.register_fake
def _(grad_stream: Tensor, grad_xn: Tensor, stream: Tensor, scale: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    grads = torch.empty_like(stream), torch.empty_like(stream, dtype=grad_xn.dtype)
    return *grads, stream.new_empty(3 * stream.shape[-1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.eps = inputs[-1]
    ctx.save_for_backward(output[0], inputs[3])


def _gradients(ctx: Any, grad_stream: Tensor, grad_xn: Tensor) -> tuple[Tensor | None, ...]:
    stream, scale = ctx.saved_tensors
    grad_x, grad_branch, sums = _add_norm_backward(grad_stream, grad_xn, stream, scale, ctx.eps)
    grad_scale, grad_shift, grad_bias = sums.chunk(3)
    return grad_x, grad_branch, grad_bias, grad_scale, grad_shift, None


_add_norm.register_autograd(_gradients, setup_context=_keep)
