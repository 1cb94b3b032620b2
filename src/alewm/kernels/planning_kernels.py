"""Triton kernels of planning: a predictor's block in inference, and the noise of all candidates."""

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


# mypy: disable-error-code="no-untyped-def, untyped-decorator"


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
