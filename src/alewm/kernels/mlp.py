"""An MLP with its GELU fused into the products: two kernels beside library products.

Forward, one kernel computes h = x w1ᵀ + b1 and writes a = GELU(h) and GELU'(h). h itself is never written, so the
backward pass only multiplies. Backward, one kernel writes the gradient of h and its sum over rows; the gradient of a
never leaves the chip. Sums over rows are made of a few partial sums in a fixed order.
"""

from typing import Any

import torch
import torch.nn.functional as F
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from alewm.errors import InputError
from alewm.kernels import token_kernels
from alewm.kernels.tiles import Tile, tile_of, two_parts
from alewm.shapes import Float, Tensor

_WIDEST_RESIDENT = 192
_SHARED_BYTES = 227 * 1024
"""Shared memory per multiprocessor of Hopper; the largest tile takes 217 KiB."""


def why_not_resident(device: torch.device, width: int) -> str | None:
    """Why weights cannot stay in shared memory while rows stream through, or None.

    The copy engine that brings the rows came with Hopper, and no earlier GPU shares so much memory among the threads of
    a program; so one question answers both. Triton's interpreter can do all of it.
    """
    if width > _WIDEST_RESIDENT:
        return f"rows of {width} do not fit on the chip beside the weights, {_WIDEST_RESIDENT} do"
    if device.type == "cuda":
        shared = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0)
        if shared < _SHARED_BYTES:
            return f"a processor of the GPU shares {shared // 1024} KiB, not {_SHARED_BYTES // 1024}"
    return None


def run_widen(x: Tensor, w1: Tensor, b1: Tensor, tile: Tile | None = None) -> tuple[Tensor, Tensor]:
    """GELU'(h) and GELU(h) of h = x w1ᵀ + b1, by one kernel."""
    (num_rows, width), hidden = x.shape, len(w1)
    tile = _checked_tile("widen", tile, x, hidden)
    x, w1, b1 = x.contiguous(), w1.contiguous(), b1.contiguous()
    slope, a = (w1.new_empty(num_rows, hidden) for _ in range(2))
    num_blocks, (left, right), sizes = triton.cdiv(num_rows, tile.rows), two_parts(width), _sizes(width, hidden, tile)
    if tile.resident:
        rows = (_tiles_of(x, tile.rows, columns) for columns in (left, right))
        weights = (_tiles_of(w1, tile.chunk, columns) for columns in (left, right))
        wide = (_tiles_of(matrix, tile.rows, tile.chunk) for matrix in (slope, a))
        num_programs = _walks(tile, hidden, num_blocks, x.device) * (hidden // tile.chunk)
        token_kernels.widen_resident[(num_programs,)](
            *rows, *weights, b1, *wide, num_blocks, **sizes, STAGES=tile.stages
        )
    else:
        token_kernels.widen[(num_blocks,)](x, w1, b1, slope, a, num_rows, **sizes, RIGHT=right, num_stages=tile.stages)
    return slope, a


def run_narrow_backward(grad_y: Tensor, w2: Tensor, slope: Tensor, tile: Tile | None = None) -> tuple[Tensor, Tensor]:
    """The gradient of h and its sum over rows, that of b1, by one kernel."""
    (num_rows, hidden), width = slope.shape, len(w2)
    tile = _checked_tile("narrow_backward", tile, grad_y, hidden)
    grad_y, w2, slope = grad_y.contiguous(), w2.contiguous(), slope.contiguous()
    grad_h = torch.empty_like(slope)
    num_blocks, (left, right), sizes = triton.cdiv(num_rows, tile.rows), two_parts(width), _sizes(width, hidden, tile)
    num_sums = _walks(tile, hidden, num_blocks, slope.device) if tile.resident else num_blocks
    sums = slope.new_empty(num_sums, hidden, dtype=torch.float32)
    if tile.resident:
        rows = (_tiles_of(grad_y, tile.rows, columns) for columns in (left, right))
        weights = (_tiles_of(w2, columns, tile.chunk) for columns in (left, right))
        wide = (_tiles_of(matrix, tile.rows, tile.chunk) for matrix in (slope, grad_h))
        token_kernels.narrow_backward_resident[(num_sums * (hidden // tile.chunk),)](
            *rows, *weights, *wide, sums, num_blocks, **sizes, STAGES=tile.stages
        )
    else:
        token_kernels.narrow_backward[(num_blocks,)](
            grad_y, w2, slope, grad_h, sums, num_rows, **sizes, RIGHT=right, num_stages=tile.stages
        )
    return grad_h, sums.sum(0)


def _checked_tile(kernel: str, tile: Tile | None, rows: Tensor, hidden: int) -> Tile:
    obstacle = why_not_resident(rows.device, rows.shape[1])
    if obstacle is None and not len(rows):
        obstacle = "there are no rows"
    if tile is None:
        return tile_of(kernel, hidden, resident=obstacle is None)
    if tile.resident and obstacle is not None:
        raise InputError(f"Weights cannot stay on the chip, as tile {tile} asks: {obstacle}. Its last number may be 0.")
    return tile


def _tiles_of(matrix: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """What the copy engine needs to know: made by the CPU alone, and as fixed in a recorded update as its addresses."""
    aligned = matrix if matrix.data_ptr() % 16 == 0 else matrix.clone()  # a view of inputs; outputs begin their memory
    return TensorDescriptor.from_tensor(aligned, [rows, columns])


def _walks(tile: Tile, hidden: int, num_blocks: int, device: torch.device) -> int:
    """Programs that share the rows, each with the same weights."""
    num_programs = tile.resident * _processors(device)
    return max(1, min(num_programs * tile.chunk // hidden, num_blocks))


def _sizes(width: int, hidden: int, tile: Tile) -> dict[str, int]:
    sizes = {"HIDDEN": hidden, "LEFT": two_parts(width)[0], "ROWS": tile.rows, "CHUNK": tile.chunk}
    return {**sizes, "num_warps": tile.warps}


def _processors(device: torch.device) -> int:
    """Multiprocessors of the GPU; a few in the interpreter, so that programs share rows there too."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 8


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
    ctx.mark_non_differentiable(*output[1:])  # output only to be saved for the backward pass
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad_y: Tensor, *_: None) -> tuple[Tensor, ...]:
    """Gradients of all inputs; what is no kernel of ours is a library product."""
    x, w1, w2, slope, a = ctx.saved_tensors
    grad_h, grad_b1 = _narrow_backward(grad_y, w2, slope)
    return grad_h @ w1, grad_h.mT @ x, grad_b1, grad_y.mT @ a


_mlp.register_autograd(_gradients, setup_context=_keep)
