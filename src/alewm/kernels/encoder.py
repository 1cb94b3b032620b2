"""The encoder's blocks one after the other by kernels of our own and library products; nothing is left to a compiler.

A branch is not added to the residual stream where it is computed but where the next branch reads the stream: `add_norm`
adds it and normalises the sum, one kernel forward and one backward. The branch comes without its map's bias, which
`add_norm` adds, so that the bias's gradient is summed where it is computed. The stream is float32; what the next branch
reads has the dtype of its products. Parameters keep their names, places and gradients.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import nn
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from alewm.kernels import token_kernels
from alewm.kernels.image_attention import attention
from alewm.kernels.mlp import mlp
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
