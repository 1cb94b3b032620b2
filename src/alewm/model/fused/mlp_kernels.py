"""Triton kernels of y = x + narrow(GELU(widen(LN(x)))), there and back; `mlp` calls them.

A program holds ROWS rows and walks over the hidden units CHUNK at a time, so that the hidden layer of the forward pass
never leaves the chip. Weights are as `nn.Linear` keeps them: w1 [HIDDEN, width], w2 [width, HIDDEN].
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

from alewm.model.fused.kernel_parts import (
    gelu,
    gelu_and_slope,
    layer_norm,
    layer_norm_backward,
    load_columns,
    load_rows,
    moments,
    store_columns,
    store_rows,
)


@triton.jit(do_not_specialize=["num_rows"])
def mlp_forward(
    x, scale, shift, w1, b1, w2, b2, y, num_rows, eps,
    HIDDEN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """y of ROWS rows; x, y, the norm and the biases are float32, the weights' dtype is that of the products."""
    dtype = w1.dtype.element_ty
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    on_left, on_right = tl.arange(0, LEFT), LEFT + tl.arange(0, RIGHT)
    left, right = load_rows(x, rows, num_rows, LEFT, RIGHT)
    mean, rstd = moments(left, right, eps, LEFT, RIGHT)
    left, right = layer_norm(left, right, scale, shift, mean, rstd, LEFT, RIGHT)
    xn_left, xn_right = left.to(dtype), right.to(dtype)
    y_left, y_right = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    for start in range(0, HIDDEN, CHUNK):
        units = start + tl.arange(0, CHUNK)
        into = w1 + units[None, :] * (LEFT + RIGHT)
        h = tl.dot(xn_left, tl.load(into + on_left[:, None]), input_precision="ieee")
        h = tl.dot(xn_right, tl.load(into + on_right[:, None]), h, input_precision="ieee")
        h += tl.load(b1 + units)[None, :]
        a = gelu(h).to(dtype)
        out_of = w2 + units[:, None]
        y_left = tl.dot(a, tl.load(out_of + on_left[None, :] * HIDDEN), y_left, input_precision="ieee")
        y_right = tl.dot(a, tl.load(out_of + on_right[None, :] * HIDDEN), y_right, input_precision="ieee")
    # Read again rather than kept: the registers hold the sums meanwhile.
    left, right = load_rows(x, rows, num_rows, LEFT, RIGHT)
    bias_left, bias_right = load_columns(b2, LEFT, RIGHT)
    store_rows(y, left + y_left + bias_left, right + y_right + bias_right, rows, num_rows, LEFT, RIGHT)


@triton.jit(do_not_specialize=["num_rows"])
def mlp_backward(
    x, scale, shift, w1, b1, w2, grad_y, grad_x, xn, grad_y_rounded, a, grad_h, sums, num_rows, eps,
    HIDDEN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """grad_x, and what the gradients of the weights are products of: xn, grad_y, a and grad_h in the weights' dtype.

    sums[program] gets what these rows give to the gradients of the norm's scale and shift, b2 and b1, in that order.
    """
    dtype = w1.dtype.element_ty
    width: tl.constexpr = LEFT + RIGHT
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = (rows < num_rows)[:, None]
    sums += tl.program_id(0).to(tl.int64) * (3 * width + HIDDEN)
    on_left, on_right = tl.arange(0, LEFT), LEFT + tl.arange(0, RIGHT)
    left, right = load_rows(grad_y, rows, num_rows, LEFT, RIGHT)
    store_columns(sums + 2 * width, left, right, LEFT, RIGHT)
    gy_left, gy_right = left.to(dtype), right.to(dtype)
    store_rows(grad_y_rounded, gy_left, gy_right, rows, num_rows, LEFT, RIGHT)
    left, right = load_rows(x, rows, num_rows, LEFT, RIGHT)
    mean, rstd = moments(left, right, eps, LEFT, RIGHT)
    left, right = layer_norm(left, right, scale, shift, mean, rstd, LEFT, RIGHT)
    xn_left, xn_right = left.to(dtype), right.to(dtype)
    store_rows(xn, xn_left, xn_right, rows, num_rows, LEFT, RIGHT)
    gx_left, gx_right = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    for start in range(0, HIDDEN, CHUNK):
        units = start + tl.arange(0, CHUNK)
        w1_left = tl.load(w1 + units[:, None] * width + on_left[None, :])
        w1_right = tl.load(w1 + units[:, None] * width + on_right[None, :])
        w2_left = tl.load(w2 + on_left[:, None] * HIDDEN + units[None, :])
        w2_right = tl.load(w2 + on_right[:, None] * HIDDEN + units[None, :])
        h = tl.dot(xn_left, tl.trans(w1_left), input_precision="ieee")
        h = tl.dot(xn_right, tl.trans(w1_right), h, input_precision="ieee")
        ga = tl.dot(gy_left, w2_left, input_precision="ieee")
        ga = tl.dot(gy_right, w2_right, ga, input_precision="ieee")
        h += tl.load(b1 + units)[None, :]
        active, slope = gelu_and_slope(h)
        gh = ga * slope
        to = rows[:, None] * HIDDEN + units[None, :]
        tl.store(a + to, active.to(dtype), mask=inside)
        tl.store(grad_h + to, gh.to(dtype), mask=inside)
        tl.store(sums + 3 * width + units, tl.sum(gh, axis=0))
        gx_left = tl.dot(gh.to(dtype), w1_left, gx_left, input_precision="ieee")
        gx_right = tl.dot(gh.to(dtype), w1_right, gx_right, input_precision="ieee")
    layer_norm_backward(
        gx_left, gx_right, x, scale, grad_y, grad_x, sums, rows, num_rows, mean, rstd, LEFT, RIGHT
    )  # fmt: skip
