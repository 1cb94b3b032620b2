"""Triton kernels of planning: a predictor's block and distilled dynamics in inference, and all candidates' noise."""

import triton
import triton.language as tl

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit
def _normalised(x, is_column, width, eps):
    centred = tl.where(is_column, x - tl.sum(x, axis=1)[:, None] / width, 0.0)
    variance = tl.sum(centred * centred, axis=1)[:, None] / width
    return centred * (1.0 / tl.sqrt(variance + eps))


@triton.jit
def residual_norm(
    x, branch, gate, shift, scale, weight, bias, out, num_rows, width, num_positions, sample_stride, position_stride,
    GATED: tl.constexpr, MODULATED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """out = LN(x + gate · branch), modulated; x is overwritten by that sum. A row is one position of one sample."""
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    is_column = (columns < width)[None, :]
    inside = (rows < num_rows)[:, None] & is_column
    at = rows[:, None] * width + columns[None, :]
    of_action = (rows // num_positions) * sample_stride + (rows % num_positions) * position_stride
    of_action = of_action[:, None] + columns[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if GATED:
        opening = tl.load(gate + of_action, mask=inside, other=0.0).to(tl.float32)
        value += opening * tl.load(branch + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(x + at, value.to(x.dtype.element_ty), mask=inside)
    if MODULATED:
        factor = 1.0 + tl.load(scale + of_action, mask=inside, other=0.0).to(tl.float32)
        offset = tl.load(shift + of_action, mask=inside, other=0.0).to(tl.float32)
        value = _normalised(value, is_column, width, 1e-6) * factor + offset
    value = _normalised(value, is_column, width, 1e-5)
    value = value * tl.load(weight + columns, mask=columns < width, other=0.0)[None, :]
    value += tl.load(bias + columns, mask=columns < width, other=0.0)[None, :]
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _mixture_of_two(query, key0, key1, value0, value1):
    # A softmax over two is a sigmoid of the difference.
    share = tl.sigmoid(tl.sum(query * (key1 - key0), axis=1))[:, None]
    return value0 + share * (value1 - value0)


@triton.jit
def _mixture_of_three(query, key0, key1, key2, value0, value1, value2):
    score0, score1, score2 = tl.sum(query * key0, axis=1), tl.sum(query * key1, axis=1), tl.sum(query * key2, axis=1)
    peak = tl.maximum(score0, tl.maximum(score1, score2))
    weight0, weight1, weight2 = tl.exp(score0 - peak), tl.exp(score1 - peak), tl.exp(score2 - peak)
    mixed = weight0[:, None] * value0 + weight1[:, None] * value1 + weight2[:, None] * value2
    return mixed / (weight0 + weight1 + weight2)[:, None]


@triton.jit
def short_attention(
    first, second, third, out, row_stride, scale,
    KNOWN: tl.constexpr, ASKED: tl.constexpr, HEADS: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """Causal attention of one sample over two or three positions, asked for the last one or for all of them."""
    row = tl.program_id(0).to(tl.int64)
    size = HEADS * HEAD
    inner = tl.arange(0, HEADS)[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    at0 = first + row * row_stride + inner
    at1 = second + row * row_stride + inner
    to = out + row * ASKED * size + inner
    key0, value0 = tl.load(at0 + size).to(tl.float32), tl.load(at0 + 2 * size).to(tl.float32)
    key1, value1 = tl.load(at1 + size).to(tl.float32), tl.load(at1 + 2 * size).to(tl.float32)
    if ASKED == KNOWN:
        tl.store(to, value0.to(out.dtype.element_ty))
    if KNOWN == 2 or ASKED == 3:
        query1 = tl.load(at1).to(tl.float32) * scale
        mixed1 = _mixture_of_two(query1, key0, key1, value0, value1)
        tl.store(to + (ASKED + 1 - KNOWN) * size, mixed1.to(out.dtype.element_ty))
    if KNOWN == 3:
        at2 = third + row * row_stride + inner
        key2, value2 = tl.load(at2 + size).to(tl.float32), tl.load(at2 + 2 * size).to(tl.float32)
        query2 = tl.load(at2).to(tl.float32) * scale
        mixed2 = _mixture_of_three(query2, key0, key1, key2, value0, value1, value2)
        tl.store(to + (ASKED - 1) * size, mixed2.to(out.dtype.element_ty))


@triton.jit
def _silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def _matrix(source, rows, columns, WIDTH: tl.constexpr):
    return tl.load(source + rows[:, None] * WIDTH + columns[None, :])


# With a horizon of 1 known to it, the compiler unrolls everything and spills kilobytes.
@triton.jit(do_not_specialize=["num_rows", "horizon", "capacity", "action_dim"])
def roll_out_distilled(
    z_first, actions, latents, mean, std, state_weight, action_weight, first_bias, hidden_weight, hidden_bias,
    output_weight, output_bias, num_rows, horizon, capacity, action_dim,
    CAPACITY: tl.constexpr, ACTION: tl.constexpr, HIDDEN: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """latents[t] = the prefixes after t + 1 action blocks. Weights are input by output, and padded with zeros.

    They stay on the chip where CHUNK is HIDDEN. Otherwise they are read in each step, CHUNK hidden units at a time.
    """
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    coordinates, entries, units = tl.arange(0, CAPACITY), tl.arange(0, ACTION), tl.arange(0, HIDDEN)
    is_row = (rows < num_rows)[:, None]
    is_coordinate = is_row & (coordinates < capacity)[None, :]
    is_entry = is_row & (entries < action_dim)[None, :]
    at = rows[:, None] * capacity + coordinates[None, :]
    shift, scale = tl.load(mean + coordinates)[None, :], tl.load(std + coordinates)[None, :]
    w = tl.where(is_coordinate, (tl.load(z_first + at, mask=is_coordinate, other=0.0) - shift) / scale, 0.0)
    if CHUNK == HIDDEN:
        of_state = _matrix(state_weight, coordinates, units, HIDDEN)
        of_action = _matrix(action_weight, entries, units, HIDDEN)
        of_hidden = _matrix(hidden_weight, units, units, HIDDEN)
        of_output = _matrix(output_weight, units, coordinates, CAPACITY)
    for t in range(horizon):
        block_at = (rows[:, None] * horizon + t) * action_dim + entries[None, :]
        block = tl.load(actions + block_at, mask=is_entry, other=0.0)
        second = tl.zeros((ROWS, HIDDEN), tl.float32) + tl.load(hidden_bias + units)[None, :]
        for start in range(0, HIDDEN, CHUNK):
            some = start + tl.arange(0, CHUNK)
            if CHUNK < HIDDEN:
                of_state = _matrix(state_weight, coordinates, some, HIDDEN)
                of_action = _matrix(action_weight, entries, some, HIDDEN)
                of_hidden = _matrix(hidden_weight, some, units, HIDDEN)
            first = tl.zeros((ROWS, CHUNK), tl.float32) + tl.load(first_bias + some)[None, :]
            first = tl.dot(block, of_action, first, input_precision="ieee")
            first = tl.dot(w, of_state, first, input_precision="ieee")
            second = tl.dot(_silu(first), of_hidden, second, input_precision="ieee")
        if CHUNK < HIDDEN:
            of_output = _matrix(output_weight, units, coordinates, CAPACITY)
        w += tl.dot(_silu(second), of_output, input_precision="ieee") + tl.load(output_bias + coordinates)[None, :]
        tl.store(latents + at, shift + scale * w, mask=is_coordinate)
        at += num_rows * capacity


@triton.jit
def draw_noise(out, seeds, num_episodes, per_candidate, per_iteration, per_episode, SIZE: tl.constexpr):
    """out[i, b, s] = standard normal numbers of episode b's stream; those of candidate 0 are zero."""
    episode = tl.program_id(0).to(tl.int64)
    entry = tl.program_id(1).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = entry < per_episode
    drawn = tl.randn(tl.load(seeds + episode), entry.to(tl.int32))
    iteration, within = entry // per_iteration, entry % per_iteration
    at = (iteration * num_episodes + episode) * per_iteration + within
    tl.store(out + at, tl.where(within < per_candidate, 0.0, drawn), mask=inside)
