"""What the kernels of a rollout with few rows share: maps of two-part rows, keys kept, and the end of a half-block."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

from alewm.model.fused.kernel_parts import layer_norm, load_columns, load_rows, moments, store_rows


@triton.jit
def head_of(left, right, weight, STRIDE: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """The rows times the columns that `weight` points at: row 0 of a matrix of STRIDE columns."""
    upper = tl.load(weight + tl.arange(0, LEFT)[:, None] * STRIDE)
    lower = tl.load(weight + (LEFT + tl.arange(0, RIGHT))[:, None] * STRIDE)
    return tl.dot(right, lower, tl.dot(left, upper, input_precision="ieee"), input_precision="ieee")


@triton.jit
def weight_rows(weight, units, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """The two parts of these rows of a matrix that has them all."""
    at = weight + units[:, None] * (LEFT + RIGHT)
    return tl.load(at + tl.arange(0, LEFT)[None, :]), tl.load(at + LEFT + tl.arange(0, RIGHT)[None, :])


@triton.jit
def store_known(known, key, value, samples, num_samples, columns, INNER: tl.constexpr):
    """Keep keys and values side by side for the positions that follow."""
    to, inside = known + samples[:, None] * (2 * INNER) + columns[None, :], (samples < num_samples)[:, None]
    tl.store(to, key.to(known.dtype.element_ty), mask=inside)
    tl.store(to + INNER, value.to(known.dtype.element_ty), mask=inside)


@triton.jit
def attended_from(known, samples, num_samples, columns, INNER: tl.constexpr):
    """The keys and values that `store_known` kept."""
    at, inside = known + samples[:, None] * (2 * INNER) + columns[None, :], (samples < num_samples)[:, None]
    key = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(at + INNER, mask=inside, other=0.0).to(tl.float32)
    return key, value


@triton.jit
def arrives_last(arrived, NUM_PARTS: tl.constexpr):
    """Whether the other programs of this group of rows have all stored their parts; then they may be read.

    The counter is left at zero, ready for the next kernel.
    """
    tl.debug_barrier()  # stores of all threads come before the one that counts
    counter = arrived + tl.program_id(0)
    is_last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == NUM_PARTS - 1
    if is_last:
        tl.store(counter, 0)
    return is_last


@triton.jit
def sum_of_parts(parts, rows, num_rows, NUM_PARTS: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """The sum of what all programs stored for these rows, always in the same order."""
    left, right = load_rows(parts, rows, num_rows, LEFT, RIGHT)
    left, right = left.to(tl.float32), right.to(tl.float32)
    for part in tl.static_range(1, NUM_PARTS):
        more_left, more_right = load_rows(parts + part * num_rows * (LEFT + RIGHT), rows, num_rows, LEFT, RIGHT)
        left += more_left.to(tl.float32)
        right += more_right.to(tl.float32)
    return left, right


@triton.jit
def load_of_action(source, at, inside, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """The two parts of a shift, scale or gate, `at` being where each row's begins."""
    left = tl.load(source + at + tl.arange(0, LEFT)[None, :], mask=inside, other=0.0)
    right = tl.load(source + at + LEFT + tl.arange(0, RIGHT)[None, :], mask=inside, other=0.0)
    return left.to(tl.float32), right.to(tl.float32)


@triton.jit
def layer_norm_twice(left, right, shift, scale, weight, bias, at, inside, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """LN with `weight` and `bias` of the plain LN that the action shifts and scales."""
    mean, rstd = moments(left, right, 1e-6, LEFT, RIGHT)
    scale_left, scale_right = load_of_action(scale, at, inside, LEFT, RIGHT)
    shift_left, shift_right = load_of_action(shift, at, inside, LEFT, RIGHT)
    left = (left - mean) * rstd * (1.0 + scale_left) + shift_left
    right = (right - mean) * rstd * (1.0 + scale_right) + shift_right
    mean, rstd = moments(left, right, 1e-5, LEFT, RIGHT)
    return layer_norm(left, right, weight, bias, mean, rstd, LEFT, RIGHT)


@triton.jit
def finish_rows(
    parts, b_out, x, x_after, gate, shift, scale, weight, bias, read_after, rows, num_rows, x_stride, num_positions,
    sample_stride, position_stride,
    NUM_PARTS: tl.constexpr, MODULATED: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
):  # fmt: skip
    """x_after = x + gate · (sum of parts + b_out), and read_after = its norm, modulated or plain."""
    inside = (rows < num_rows)[:, None]
    at = ((rows // num_positions) * sample_stride + (rows % num_positions) * position_stride)[:, None]
    left, right = sum_of_parts(parts, rows, num_rows, NUM_PARTS, LEFT, RIGHT)
    bias_left, bias_right = load_columns(b_out, LEFT, RIGHT)
    gate_left, gate_right = load_of_action(gate, at, inside, LEFT, RIGHT)
    x_left, x_right = load_of_action(x, rows[:, None] * x_stride, inside, LEFT, RIGHT)
    left = x_left + gate_left * (left + bias_left.to(tl.float32))
    right = x_right + gate_right * (right + bias_right.to(tl.float32))
    store_rows(x_after, left, right, rows, num_rows, LEFT, RIGHT)
    if MODULATED:
        left, right = layer_norm_twice(left, right, shift, scale, weight, bias, at, inside, LEFT, RIGHT)
    else:
        mean, rstd = moments(left, right, 1e-5, LEFT, RIGHT)
        left, right = layer_norm(left, right, weight, bias, mean, rstd, LEFT, RIGHT)
    store_rows(read_after, left, right, rows, num_rows, LEFT, RIGHT)
