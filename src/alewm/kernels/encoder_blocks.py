"""The encoder's blocks one after the other by kernels of our own and library products; nothing is left to a compiler.

A branch is not added to the residual stream where it is computed but where the next branch reads the stream: `add_norm`
adds it and normalises the sum, one kernel forward and one backward. The branch comes without its map's bias, which
`add_norm` adds, so that the bias's gradient is summed where it is computed. The stream is float32; what the next branch
reads has the dtype of its products. Parameters keep their names, places and gradients.

The MLP has its GELU fused into the products: two kernels beside library products. Forward, one kernel computes h = x
w1ᵀ + b1 and writes a = GELU(h) and GELU'(h). h itself is never written, so the backward pass only multiplies. Backward,
one kernel writes the gradient of h and its sum over rows; the gradient of a never leaves the chip. Sums over rows are
made of a few partial sums in a fixed order.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import nn
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError
from triton.tools.tensor_descriptor import TensorDescriptor

from alewm.errors import InputError
from alewm.kernels import token_kernels
from alewm.kernels.image_attention import attention
from alewm.kernels.tiles import Tile, tile_of, two_parts
from alewm.model.vit import SelfAttention, ViT, ViTBlock, ViTConfig, first_token_after
from alewm.shapes import Float, Tensor

_PROCESSORS = 132
"""Multiprocessors of the largest GPUs; a fixed number of programs fixes the order of summation."""


class Branch(NamedTuple):
    """A branch of the residual stream: a map's output and its bias."""

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
    token_kernels.add_norm_forward[(triton.cdiv(num_rows, tile.rows),)](
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
    token_kernels.add_norm_backward[(num_programs,)](
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
    num_blocks, (left, right), sizes = (
        triton.cdiv(num_rows, tile.rows),
        two_parts(width),
        _mlp_sizes(width, hidden, tile),
    )
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
    num_blocks, (left, right), sizes = (
        triton.cdiv(num_rows, tile.rows),
        two_parts(width),
        _mlp_sizes(width, hidden, tile),
    )
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


def _mlp_sizes(width: int, hidden: int, tile: Tile) -> dict[str, int]:
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


def _keep_mlp(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    x, w1, _, w2 = inputs
    ctx.save_for_backward(x, w1, w2, *output[1:])
    ctx.mark_non_differentiable(*output[1:])  # output only to be saved for the backward pass
    ctx.set_materialize_grads(False)


def _mlp_gradients(ctx: Any, grad_y: Tensor, *_: None) -> tuple[Tensor, ...]:
    """Gradients of all inputs; what is no kernel of ours is a library product."""
    x, w1, w2, slope, a = ctx.saved_tensors
    grad_h, grad_b1 = _narrow_backward(grad_y, w2, slope)
    return grad_h @ w1, grad_h.mT @ x, grad_b1, grad_y.mT @ a


_mlp.register_autograd(_mlp_gradients, setup_context=_keep_mlp)


def fuse_blocks(encoder: ViT) -> None:
    """Replace the encoder's blocks by these kernels, wherever products are in their dtype."""
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
