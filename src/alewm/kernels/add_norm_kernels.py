"""Triton kernels of a residual sum and the LayerNorm that reads it, forward and backward; `add_norm` launches them."""

import triton
import triton.language as tl

from alewm.kernels.kernel_parts import layer_norm, load_columns, load_rows, moments, store_columns, store_rows

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit(do_not_specialize=["num_rows"])
def add_norm_forward(
    x, branch, bias, scale, shift, stream, xn, num_rows, eps,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """xn = LN(stream) of ROWS rows, where stream = x + branch + bias."""
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    left, right = load_rows(x, rows, num_rows, LEFT, RIGHT)
    branch_left, branch_right = load_rows(branch, rows, num_rows, LEFT, RIGHT)
    bias_left, bias_right = load_columns(bias, LEFT, RIGHT)
    left += branch_left.to(tl.float32) + bias_left
    right += branch_right.to(tl.float32) + bias_right
    store_rows(stream, left, right, rows, num_rows, LEFT, RIGHT)
    mean, rstd = moments(left, right, eps, LEFT, RIGHT)
    left, right = layer_norm(left, right, scale, shift, mean, rstd, LEFT, RIGHT)
    store_rows(xn, left, right, rows, num_rows, LEFT, RIGHT)


@triton.jit(do_not_specialize=["num_rows"])
def add_norm_backward(
    stream, scale, grad_stream, grad_xn, grad_x, grad_branch, sums, num_rows, eps,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """grad_x = grad_stream + the gradient through LN, and the same once more in the branch's dtype.

    Programs share all rows among them. sums[program] gets what its rows give to the gradients of scale, shift and bias;
    rows beyond the last give nothing, since every gradient that is read there is zero.
    """
    width: tl.constexpr = LEFT + RIGHT
    sums += tl.program_id(0).to(tl.int64) * (3 * width)
    scale_left, scale_right = load_columns(scale, LEFT, RIGHT)
    # Sums are kept by row until the end: to add rows up, threads wait for each other.
    to_scale_left, to_scale_right = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    to_shift_left, to_shift_right = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    to_bias_left, to_bias_right = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    for start in range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        left, right = load_rows(stream, rows, num_rows, LEFT, RIGHT)
        grad_left, grad_right = load_rows(grad_xn, rows, num_rows, LEFT, RIGHT)
        above_left, above_right = load_rows(grad_stream, rows, num_rows, LEFT, RIGHT)
        mean, rstd = moments(left, right, eps, LEFT, RIGHT)
        left, right = (left - mean) * rstd, (right - mean) * rstd
        grad_left, grad_right = grad_left.to(tl.float32), grad_right.to(tl.float32)
        to_scale_left += grad_left * left
        to_scale_right += grad_right * right
        to_shift_left += grad_left
        to_shift_right += grad_right
        grad_left, grad_right = grad_left * scale_left, grad_right * scale_right
        mean_grad = (tl.sum(grad_left, axis=1) + tl.sum(grad_right, axis=1))[:, None] / width
        along = (tl.sum(grad_left * left, axis=1) + tl.sum(grad_right * right, axis=1))[:, None] / width
        grad_left = above_left + rstd * (grad_left - mean_grad - left * along)
        grad_right = above_right + rstd * (grad_right - mean_grad - right * along)
        store_rows(grad_x, grad_left, grad_right, rows, num_rows, LEFT, RIGHT)
        store_rows(grad_branch, grad_left, grad_right, rows, num_rows, LEFT, RIGHT)
        to_bias_left += grad_left
        to_bias_right += grad_right
    store_columns(sums, to_scale_left, to_scale_right, LEFT, RIGHT)
    store_columns(sums + width, to_shift_left, to_shift_right, LEFT, RIGHT)
    store_columns(sums + 2 * width, to_bias_left, to_bias_right, LEFT, RIGHT)
