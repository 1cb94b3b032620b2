"""One function per kernel of a rollout with few rows: what it reads, what it writes, how it is cut.

Candidates are N samples of one to three positions; x is the residual stream, float32; `read` is its norm in the dtype
of the products. Shift, scale and gate are slices of one tensor and share its strides.
"""

import math
from typing import NamedTuple

import torch
import triton

from alewm.model.few_rows import kernels
from alewm.model.few_rows.launching import launch
from alewm.model.fused.tiles import Tile, tile_of
from alewm.model.fused.widths import two_parts
from alewm.model.prepared import Map, Norm
from alewm.shapes import Float, Int, Tensor

_ROWS_AT_BEGIN = 4
_ACTION_ROWS, _ACTION_CHUNK = 16, 64
_LONGEST_STEP = 64
"""Hidden units that a program may take at a time; what it holds of the weights must fit on the chip."""
_SMALLEST_SIDE = 16
"""Tensor cores multiply tiles with sides of at least this."""


class Reader(NamedTuple):
    """How the next half-block reads x: a norm, and the action's shift and scale before it where there are any."""

    norm: Norm
    shift: Float[Tensor, "N T W"] | None = None
    scale: Float[Tensor, "N T W"] | None = None


class Stream(NamedTuple):
    """N samples of T positions in both forms."""

    x: Float[Tensor, "N T W"]
    read: Float[Tensor, "N T W"]


def begin(
    latents: list[Float[Tensor, "N _"]],
    position: Float[Tensor, "T W"],
    reader: Reader,
    dtype: torch.dtype,
) -> Stream:
    """The stream that enters the first block: latents, narrower ones with zeros, plus the places they stand at."""
    (N, known), T, W = latents[0].shape, len(latents), position.shape[1]
    assert reader.shift is not None
    x = torch.empty(N, T, W, device=position.device)
    read = torch.empty(N, T, W, device=position.device, dtype=dtype)
    left, right = two_parts(W)
    launch(
        kernels.begin, (triton.cdiv(N, _ROWS_AT_BEGIN), T),
        latents[0], latents[min(1, T - 1)], latents[-1], latents[0].stride(0), latents[-1].stride(0), position,
        reader.shift, reader.scale, *reader.norm, x, read, N, known, *reader.shift.stride()[:2],
        POSITIONS=T, LEFT=left, RIGHT=right, ROWS=_ROWS_AT_BEGIN, num_warps=4,
    )  # fmt: skip
    return Stream(x, read)


def encode_actions(actions: Float[Tensor, "rows A"], widen: Map, narrow: Map) -> Float[Tensor, "rows W"]:
    """What the modulations are maps of: the encoded action blocks after SiLU."""
    num_rows, num_inputs = actions.shape
    (hidden, W), (left, right) = narrow.weight.shape, two_parts(narrow.weight.shape[1])
    out = torch.empty(num_rows, W, device=actions.device, dtype=widen.weight.dtype)
    launch(
        kernels.encode_actions, (triton.cdiv(num_rows, _ACTION_ROWS),),
        actions, *widen, *narrow, out, num_rows, num_inputs,
        INPUTS=max(_SMALLEST_SIDE, triton.next_power_of_2(num_inputs)), HIDDEN=hidden,
        CHUNK=min(_ACTION_CHUNK, hidden & -hidden), LEFT=left, RIGHT=right, ROWS=_ACTION_ROWS, num_warps=4,
    )  # fmt: skip
    return out


def attention_half(
    stream: Stream,
    qkv: Float[Tensor, "W qkv"],
    output: Map,
    num_heads: int,
    past: list[Float[Tensor, "N kv"]],
    gate: Float[Tensor, "N T_out W"],
    reader: Reader,
    arrived: Int[Tensor, " groups"],
    tile: Tile | None = None,
) -> tuple[Stream, Float[Tensor, "N kv"] | None]:
    """The last T_out positions after attention to all before them, those in `past` included; what to remember.

    Only of a single new position are key and value returned: several at once have no successor that could ask them.
    """
    (N, T, W), (inner, _), T_out = stream.x.shape, output.weight.shape, gate.shape[1]
    tile = tile or tile_of(f"few_rows_attention_{min(T, 2)}", inner)
    head, num_parts = inner // num_heads, math.gcd(tile.parts, num_heads)
    known = torch.empty(N, 2 * inner, device=qkv.device, dtype=qkv.dtype) if T == 1 else None
    older = past[-1] if past else qkv
    x, after = stream.x[:, T - T_out :], _like(stream, T_out)
    parts = torch.empty(num_parts, N * T_out, W, device=qkv.device, dtype=qkv.dtype)
    assert reader.shift is not None
    left, right = two_parts(W)
    launch(
        kernels.attention_half, (triton.cdiv(N, tile.rows), num_parts),
        stream.read, qkv, *output, past[0] if past else qkv, older, qkv if known is None else known, parts, arrived,
        x, after.x, gate, reader.shift, reader.scale, *reader.norm, after.read, N, x.stride(1 if T_out == T else 0),
        *gate.stride()[:2], head**-0.5, NEW=T, KNOWN=len(past) + T, ASKED=T_out, INNER=inner, HEAD=head,
        CHUNK=inner // num_parts, LEFT=left, RIGHT=right, ROWS=tile.rows, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return after, known


def mlp_half(
    stream: Stream,
    widen: Map,
    narrow: Map,
    gate: Float[Tensor, "N T W"],
    reader: Reader,
    arrived: Int[Tensor, " groups"],
    tile: Tile | None = None,
) -> Stream:
    """The stream after a block's MLP, read as what follows wants it."""
    (N, T, W), (hidden, _) = stream.x.shape, narrow.weight.shape
    tile = tile or tile_of(f"few_rows_mlp_{min(T, 2)}", hidden)
    after = _like(stream, T)
    parts = torch.empty(tile.parts, N * T, W, device=gate.device, dtype=stream.read.dtype)
    shift, scale = (gate, gate) if reader.shift is None or reader.scale is None else (reader.shift, reader.scale)
    left, right = two_parts(W)
    launch(
        kernels.mlp_half, (triton.cdiv(N * T, tile.rows), tile.parts),
        stream.read, *widen, *narrow, parts, arrived, stream.x, after.x, gate, shift, scale, *reader.norm, after.read,
        N * T, W, T, *gate.stride()[:2], HIDDEN=hidden, CHUNK=hidden // tile.parts, STEP=min(tile.chunk, _LONGEST_STEP),
        MODULATED=reader.shift is not None, LEFT=left, RIGHT=right, ROWS=tile.rows, num_warps=tile.warps,
        num_stages=tile.stages,
    )  # fmt: skip
    return after


def project(
    read: Float[Tensor, "N W"],
    widen: Map,
    narrow: Map,
    width: int,
    arrived: Int[Tensor, " groups"],
    tile: Tile | None = None,
) -> Float[Tensor, "N {width}"]:
    """The first `width` coordinates of the latents that the projector makes of these rows."""
    (N, W), (hidden, D) = read.shape, narrow.weight.shape
    tile = tile or tile_of("few_rows_mlp_1", hidden)
    z = torch.empty(N, width, device=read.device)
    parts = torch.empty(tile.parts, N, W, device=read.device, dtype=read.dtype)
    left, right = two_parts(W)
    launch(
        kernels.project, (triton.cdiv(N, tile.rows), tile.parts),
        read, *widen, *narrow, parts, arrived, z, N, width, D, HIDDEN=hidden, CHUNK=hidden // tile.parts,
        STEP=min(tile.chunk, _LONGEST_STEP), LEFT=left, RIGHT=right, ROWS=tile.rows, num_warps=tile.warps,
        num_stages=tile.stages,
    )  # fmt: skip
    return z


def _like(stream: Stream, num_positions: int) -> Stream:
    N, _, W = stream.x.shape
    return Stream(stream.x.new_empty(N, num_positions, W), stream.read.new_empty(N, num_positions, W))
