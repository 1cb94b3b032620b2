"""Triton kernels on both sides of the library's attention, there and back; `attention` calls them.

Before it: LN and the maps to query, key and value, each written as attention reads it, row after row. After it: the
output map with its residual sum. Weights are as `nn.Linear` keeps them, those of query, key and value stacked.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

from alewm.model.fused.kernel_parts import (
    layer_norm,
    layer_norm_backward,
    load_columns,
    load_rows,
    moments,
    store_columns,
    store_rows,
)


@triton.jit(do_not_specialize=["num_rows"])
def qkv_forward(
    x, scale, shift, weight, bias, query, key, value, stream, num_rows, eps,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Query, key and value of ROWS rows in the weights' dtype, and x once more as the stream that goes past them."""
    dtype = weight.dtype.element_ty
    width: tl.constexpr = LEFT + RIGHT
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = (rows < num_rows)[:, None]
    on_left, on_right = tl.arange(0, LEFT)[:, None], LEFT + tl.arange(0, RIGHT)[:, None]
    left, right = load_rows(x, rows, num_rows, LEFT, RIGHT)
    store_rows(stream, left, right, rows, num_rows, LEFT, RIGHT)
    mean, rstd = moments(left, right, eps, LEFT, RIGHT)
    left, right = layer_norm(left, right, scale, shift, mean, rstd, LEFT, RIGHT)
    xn_left, xn_right = left.to(dtype), right.to(dtype)
    for part in tl.static_range(3):
        if part == 0:
            target = query
        elif part == 1:
            target = key
        else:
            target = value
        for start in range(0, width, CHUNK):
            columns = start + tl.arange(0, CHUNK)[None, :]
            at = weight + (part * width + columns) * width
            mapped = tl.dot(xn_left, tl.load(at + on_left), input_precision="ieee")
            mapped = tl.dot(xn_right, tl.load(at + on_right), mapped, input_precision="ieee")
            mapped += tl.load(bias + part * width + columns)
            tl.store(target + rows[:, None] * width + columns, mapped.to(dtype), mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def qkv_backward(
    x, scale, shift, weight, grad_query, grad_key, grad_value, grad_stream, grad_x, xn, sums, num_rows, eps,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """grad_x, and LN(x) once more for the gradients of the weights.

    sums[program] gets what these rows give to the gradients of the norm's scale and shift and of the biases.
    """
    width: tl.constexpr = LEFT + RIGHT
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = (rows < num_rows)[:, None]
    sums += tl.program_id(0).to(tl.int64) * (5 * width)
    on_left, on_right = tl.arange(0, LEFT)[None, :], LEFT + tl.arange(0, RIGHT)[None, :]
    left, right = load_rows(x, rows, num_rows, LEFT, RIGHT)
    mean, rstd = moments(left, right, eps, LEFT, RIGHT)
    left, right = layer_norm(left, right, scale, shift, mean, rstd, LEFT, RIGHT)
    store_rows(xn, left, right, rows, num_rows, LEFT, RIGHT)
    gx_left, gx_right = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    for part in tl.static_range(3):
        if part == 0:
            source = grad_query
        elif part == 1:
            source = grad_key
        else:
            source = grad_value
        for start in range(0, width, CHUNK):
            columns = start + tl.arange(0, CHUNK)
            grad = tl.load(source + rows[:, None] * width + columns[None, :], mask=inside, other=0.0)
            tl.store(sums + (2 + part) * width + columns, tl.sum(grad.to(tl.float32), axis=0))
            at = weight + (part * width + columns)[:, None] * width
            gx_left = tl.dot(grad, tl.load(at + on_left), gx_left, input_precision="ieee")
            gx_right = tl.dot(grad, tl.load(at + on_right), gx_right, input_precision="ieee")
    layer_norm_backward(
        gx_left, gx_right, x, scale, grad_stream, grad_x, sums, rows, num_rows, mean, rstd, LEFT, RIGHT
    )  # fmt: skip


@triton.jit(do_not_specialize=["num_rows"])
def project_forward(
    attended, weight, bias, stream, y, num_rows,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """y = stream + the output map of what attention gave."""
    width: tl.constexpr = LEFT + RIGHT
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = (rows < num_rows)[:, None]
    on_left, on_right = tl.arange(0, LEFT)[None, :] * width, (LEFT + tl.arange(0, RIGHT))[None, :] * width
    y_left, y_right = tl.zeros((ROWS, LEFT), tl.float32), tl.zeros((ROWS, RIGHT), tl.float32)
    for start in range(0, width, CHUNK):
        columns = start + tl.arange(0, CHUNK)
        read = tl.load(attended + rows[:, None] * width + columns[None, :], mask=inside, other=0.0)
        at = weight + columns[:, None]
        y_left = tl.dot(read, tl.load(at + on_left), y_left, input_precision="ieee")
        y_right = tl.dot(read, tl.load(at + on_right), y_right, input_precision="ieee")
    left, right = load_rows(stream, rows, num_rows, LEFT, RIGHT)
    bias_left, bias_right = load_columns(bias, LEFT, RIGHT)
    store_rows(y, left + y_left + bias_left, right + y_right + bias_right, rows, num_rows, LEFT, RIGHT)


@triton.jit(do_not_specialize=["num_rows"])
def project_backward(
    grad_y, weight, grad_attended, grad_y_rounded, sums, num_rows,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """grad_attended, and grad_y in the weights' dtype; sums[program] gets what these rows give to the bias."""
    dtype = weight.dtype.element_ty
    width: tl.constexpr = LEFT + RIGHT
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = (rows < num_rows)[:, None]
    on_left, on_right = tl.arange(0, LEFT)[:, None] * width, (LEFT + tl.arange(0, RIGHT))[:, None] * width
    left, right = load_rows(grad_y, rows, num_rows, LEFT, RIGHT)
    store_columns(sums + tl.program_id(0).to(tl.int64) * width, left, right, LEFT, RIGHT)
    gy_left, gy_right = left.to(dtype), right.to(dtype)
    store_rows(grad_y_rounded, gy_left, gy_right, rows, num_rows, LEFT, RIGHT)
    for start in range(0, width, CHUNK):
        columns = start + tl.arange(0, CHUNK)[None, :]
        grad = tl.dot(gy_left, tl.load(weight + on_left + columns), input_precision="ieee")
        grad = tl.dot(gy_right, tl.load(weight + on_right + columns), grad, input_precision="ieee")
        tl.store(grad_attended + rows[:, None] * width + columns, grad.to(dtype), mask=inside)
