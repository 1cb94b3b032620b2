"""Triton kernels of a rollout with few rows; `halves` calls them.

A program is (group of rows, part of the sum). Products are in the dtype of the weights [inputs, outputs], everything
else is float32. A row of width LEFT + RIGHT is held as two tiles, as in `fused.kernel_parts`.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

from alewm.model.few_rows.kernel_parts import (
    arrives_last,
    attended_from,
    finish_rows,
    head_of,
    layer_norm_twice,
    store_known,
    sum_of_parts,
    weight_rows,
)
from alewm.model.fused.kernel_parts import gelu, load_columns, load_rows, store_rows
from alewm.model.triton_kernels import mixture_of_three, mixture_of_two


@triton.jit(do_not_specialize=["num_samples", "first_stride", "later_stride", "known_columns"])
def begin(
    first, second, third, first_stride, later_stride, position, shift, scale, weight, bias, x, read,
    num_samples, known_columns, sample_stride, position_stride,
    POSITIONS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """x = each position's latent, zero beyond `known_columns`, plus where it stands; read = its modulated norm."""
    samples = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    place = tl.program_id(1)
    source = first + samples[:, None] * first_stride
    if place == 1:
        source = second + samples[:, None] * later_stride
    if place == 2:
        source = third + samples[:, None] * later_stride
    inside = (samples < num_samples)[:, None]
    on_left, on_right = tl.arange(0, LEFT)[None, :], LEFT + tl.arange(0, RIGHT)[None, :]
    left = tl.load(source + on_left, mask=inside & (on_left < known_columns), other=0.0)
    right = tl.load(source + on_right, mask=inside & (on_right < known_columns), other=0.0)
    place_left, place_right = load_columns(position + place * (LEFT + RIGHT), LEFT, RIGHT)
    left, right = left + place_left, right + place_right
    rows = samples * POSITIONS + place
    num_rows = num_samples * POSITIONS
    store_rows(x, left, right, rows, num_rows, LEFT, RIGHT)
    at = (samples * sample_stride + place * position_stride)[:, None]
    left, right = layer_norm_twice(left, right, shift, scale, weight, bias, at, inside, LEFT, RIGHT)
    store_rows(read, left, right, rows, num_rows, LEFT, RIGHT)


@triton.jit(do_not_specialize=["num_rows"])
def encode_actions(
    actions, w1, b1, w2, b2, out, num_rows, num_inputs,
    INPUTS: tl.constexpr, HIDDEN: tl.constexpr, CHUNK: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """out = SiLU(narrow(SiLU(widen(actions)))), what all modulations are maps of."""
    dtype = w1.dtype.element_ty
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inputs = tl.arange(0, INPUTS)
    given = (rows < num_rows)[:, None] & (inputs < num_inputs)[None, :]
    action = tl.load(actions + rows[:, None] * num_inputs + inputs[None, :], mask=given, other=0.0).to(dtype)
    left, right = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    for start in range(0, HIDDEN, CHUNK):
        units = start + tl.arange(0, CHUNK)
        into = tl.load(w1 + inputs[:, None] * HIDDEN + units[None, :], mask=(inputs < num_inputs)[:, None], other=0.0)
        h = tl.dot(action, into, input_precision="ieee") + tl.load(b1 + units)[None, :].to(tl.float32)
        h = (h * tl.sigmoid(h)).to(dtype)
        out_left, out_right = weight_rows(w2, units, LEFT, RIGHT)
        left = tl.dot(h, out_left, left, input_precision="ieee")
        right = tl.dot(h, out_right, right, input_precision="ieee")
    bias_left, bias_right = load_columns(b2, LEFT, RIGHT)
    left, right = left + bias_left.to(tl.float32), right + bias_right.to(tl.float32)
    store_rows(out, left * tl.sigmoid(left), right * tl.sigmoid(right), rows, num_rows, LEFT, RIGHT)


@triton.jit(do_not_specialize=["num_rows"])
def mlp_half(
    read, w1, b1, w2, b2, parts, arrived, x, x_after, gate, shift, scale, weight, bias, read_after,
    num_rows, x_stride, num_positions, sample_stride, position_stride,
    HIDDEN: tl.constexpr, CHUNK: tl.constexpr, STEP: tl.constexpr, MODULATED: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """x_after = x + gate · MLP(read), and read_after = its norm; a program takes CHUNK hidden units."""
    dtype = w1.dtype.element_ty
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(1)
    read_left, read_right = load_rows(read, rows, num_rows, LEFT, RIGHT)
    left, right = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    for start in range(0, CHUNK, STEP):
        units = part * CHUNK + start + tl.arange(0, STEP)
        h = head_of(read_left, read_right, w1 + units[None, :], HIDDEN, LEFT, RIGHT)
        h = gelu(h + tl.load(b1 + units)[None, :].to(tl.float32)).to(dtype)
        out_left, out_right = weight_rows(w2, units, LEFT, RIGHT)
        left = tl.dot(h, out_left, left, input_precision="ieee")
        right = tl.dot(h, out_right, right, input_precision="ieee")
    store_rows(parts + part * num_rows * (LEFT + RIGHT), left, right, rows, num_rows, LEFT, RIGHT)
    if arrives_last(arrived, HIDDEN // CHUNK):
        finish_rows(
            parts, b2, x, x_after, gate, shift, scale, weight, bias, read_after, rows, num_rows, x_stride,
            num_positions, sample_stride, position_stride, HIDDEN // CHUNK, MODULATED, LEFT, RIGHT,
        )  # fmt: skip


@triton.jit(do_not_specialize=["num_rows"])
def project(
    read, w1, b1, w2, b2, parts, arrived, out, num_rows, num_outputs, w2_stride,
    HIDDEN: tl.constexpr, CHUNK: tl.constexpr, STEP: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """out = the first `num_outputs` coordinates of the projection of `read`; a program takes CHUNK hidden units."""
    dtype = w1.dtype.element_ty
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(1)
    on_left, on_right = tl.arange(0, LEFT)[None, :], LEFT + tl.arange(0, RIGHT)[None, :]
    read_left, read_right = load_rows(read, rows, num_rows, LEFT, RIGHT)
    left, right = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    for start in range(0, CHUNK, STEP):
        units = part * CHUNK + start + tl.arange(0, STEP)
        h = head_of(read_left, read_right, w1 + units[None, :], HIDDEN, LEFT, RIGHT)
        h = gelu(h + tl.load(b1 + units)[None, :].to(tl.float32)).to(dtype)
        out_of = w2 + units[:, None] * w2_stride
        left = tl.dot(h, tl.load(out_of + on_left, mask=on_left < num_outputs, other=0.0), left, input_precision="ieee")
        right = tl.dot(
            h, tl.load(out_of + on_right, mask=on_right < num_outputs, other=0.0), right, input_precision="ieee"
        )
    store_rows(parts + part * num_rows * (LEFT + RIGHT), left, right, rows, num_rows, LEFT, RIGHT)
    if arrives_last(arrived, HIDDEN // CHUNK):
        left, right = sum_of_parts(parts, rows, num_rows, HIDDEN // CHUNK, LEFT, RIGHT)
        left += tl.load(b2 + on_left, mask=on_left < num_outputs, other=0.0).to(tl.float32)
        right += tl.load(b2 + on_right, mask=on_right < num_outputs, other=0.0).to(tl.float32)
        to, inside = out + rows[:, None] * num_outputs, (rows < num_rows)[:, None]
        tl.store(to + on_left, left, mask=inside & (on_left < num_outputs))
        tl.store(to + on_right, right, mask=inside & (on_right < num_outputs))


@triton.jit(do_not_specialize=["num_samples"])
def attention_half(
    read, qkv, w_out, b_out, oldest, older, known, parts, arrived, x, x_after, gate, shift, scale, weight, bias,
    read_after, num_samples, x_stride, sample_stride, position_stride, softmax_scale,
    NEW: tl.constexpr, KNOWN: tl.constexpr, ASKED: tl.constexpr, INNER: tl.constexpr, HEAD: tl.constexpr,
    CHUNK: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """x_after = x + gate · attention(read), and read_after = its norm; a program takes the heads in CHUNK columns.

    Of KNOWN positions the last NEW are in `read`, sample by sample; keys and values of the others, if any, are in
    `oldest` and `older`. The last ASKED ask. Where only one is new its key and value go to `known`.
    """
    dtype = qkv.dtype.element_ty
    samples = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(1)
    num_new, num_rows = num_samples * NEW, num_samples * ASKED
    newest_left, newest_right = load_rows(read, samples * NEW + NEW - 1, num_new, LEFT, RIGHT)
    if NEW >= 2:
        older_left, older_right = load_rows(read, samples * NEW + NEW - 2, num_new, LEFT, RIGHT)
    if NEW == 3:
        oldest_left, oldest_right = load_rows(read, samples * NEW, num_new, LEFT, RIGHT)
    left, right = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    if ASKED >= 2:
        left1, right1 = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    if ASKED == 3:
        left0, right0 = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    for start in range(0, CHUNK, HEAD):
        columns = part * CHUNK + start + tl.arange(0, HEAD)
        to_query = qkv + columns[None, :]
        to_key, to_value = to_query + INNER, to_query + 2 * INNER
        value2 = head_of(newest_left, newest_right, to_value, 3 * INNER, LEFT, RIGHT)
        if KNOWN == 1:
            mixed = value2
        else:
            query = head_of(newest_left, newest_right, to_query, 3 * INNER, LEFT, RIGHT) * softmax_scale
        if KNOWN >= 2 or NEW == 1:
            key2 = head_of(newest_left, newest_right, to_key, 3 * INNER, LEFT, RIGHT)
        if NEW == 1:
            store_known(known, key2, value2, samples, num_samples, columns, INNER)
        if KNOWN >= 2:
            if NEW >= 2:
                key1 = head_of(older_left, older_right, to_key, 3 * INNER, LEFT, RIGHT)
                value1 = head_of(older_left, older_right, to_value, 3 * INNER, LEFT, RIGHT)
            else:
                key1, value1 = attended_from(older, samples, num_samples, columns, INNER)
        if KNOWN == 2:
            mixed = mixture_of_two(query, key1, key2, value1, value2)
        if KNOWN == 3:
            if NEW == 3:
                key0 = head_of(oldest_left, oldest_right, to_key, 3 * INNER, LEFT, RIGHT)
                value0 = head_of(oldest_left, oldest_right, to_value, 3 * INNER, LEFT, RIGHT)
            else:
                key0, value0 = attended_from(oldest, samples, num_samples, columns, INNER)
            mixed = mixture_of_three(query, key0, key1, key2, value0, value1, value2)
        out_left, out_right = weight_rows(w_out, columns, LEFT, RIGHT)
        left = tl.dot(mixed.to(dtype), out_left, left, input_precision="ieee")
        right = tl.dot(mixed.to(dtype), out_right, right, input_precision="ieee")
        if ASKED >= 2:
            mixed1 = value1
            if KNOWN == 3:
                query1 = head_of(older_left, older_right, to_query, 3 * INNER, LEFT, RIGHT) * softmax_scale
                mixed1 = mixture_of_two(query1, key0, key1, value0, value1)
            left1 = tl.dot(mixed1.to(dtype), out_left, left1, input_precision="ieee")
            right1 = tl.dot(mixed1.to(dtype), out_right, right1, input_precision="ieee")
        if ASKED == 3:
            left0 = tl.dot(value0.to(dtype), out_left, left0, input_precision="ieee")
            right0 = tl.dot(value0.to(dtype), out_right, right0, input_precision="ieee")
    mine = parts + part * num_rows * (LEFT + RIGHT)
    rows = samples * ASKED
    store_rows(mine, left, right, rows + ASKED - 1, num_rows, LEFT, RIGHT)
    if ASKED >= 2:
        store_rows(mine, left1, right1, rows + ASKED - 2, num_rows, LEFT, RIGHT)
    if ASKED == 3:
        store_rows(mine, left0, right0, rows, num_rows, LEFT, RIGHT)
    if arrives_last(arrived, INNER // CHUNK):
        for asked in tl.static_range(ASKED):
            finish_rows(
                parts, b_out, x, x_after, gate, shift, scale, weight, bias, read_after, rows + asked, num_rows,
                x_stride, ASKED, sample_stride, position_stride, INNER // CHUNK, True, LEFT, RIGHT,
            )  # fmt: skip
