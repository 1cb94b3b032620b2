"""The two Triton kernels of the characteristic function; `characteristic_function_triton` launches them."""

import triton
import triton.language as tl

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit
def partial_sums(
    x, weight, out, num_rows, num_columns, num_parts, spacing,
    Q: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """out[g, part, :, j, p] = Σ over the part's rows of weight · (cos, sin)(j h x)."""
    g, part, tile = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    rows = part * ROWS + tl.arange(0, ROWS)
    columns = tile * COLUMNS + tl.arange(0, COLUMNS)
    is_row, is_column = rows < num_rows, columns < num_columns
    at = (g * num_rows + rows)[:, None] * num_columns + columns[None, :]
    angle = spacing * tl.load(x + at, mask=is_row[:, None] & is_column[None, :], other=0.0)
    w = tl.load(weight + g * num_rows + rows, mask=is_row, other=0.0)[:, None]
    step_cos, step_sin = tl.cos(angle), tl.sin(angle)
    cos, sin = step_cos, step_sin
    real = out + (g * num_parts + part) * 2 * Q * num_columns + columns
    imaginary = real + Q * num_columns
    ones = tl.full((ROWS, COLUMNS), 1.0, tl.float32)
    tl.store(real, tl.sum(w * ones, axis=0), mask=is_column)
    tl.store(imaginary, tl.zeros((COLUMNS,), tl.float32), mask=is_column)
    for j in tl.static_range(1, Q):
        tl.store(real + j * num_columns, tl.sum(w * cos, axis=0), mask=is_column)
        tl.store(imaginary + j * num_columns, tl.sum(w * sin, axis=0), mask=is_column)
        next_cos = cos * step_cos - sin * step_sin
        sin = sin * step_cos + cos * step_sin
        cos = next_cos


@triton.jit
def gradients(
    x, weight, grad, grad_weight, num_rows, num_columns, num_tiles, spacing,
    Q: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """x is overwritten by its gradient; grad_weight[g, tile] is the part of weight's that comes from these columns."""
    g, part, tile = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    rows = part * ROWS + tl.arange(0, ROWS)
    columns = tile * COLUMNS + tl.arange(0, COLUMNS)
    is_row, is_column = rows < num_rows, columns < num_columns
    at = (g * num_rows + rows)[:, None] * num_columns + columns[None, :]
    inside = is_row[:, None] & is_column[None, :]
    angle = spacing * tl.load(x + at, mask=inside, other=0.0)
    w = tl.load(weight + g * num_rows + rows, mask=is_row, other=0.0)
    step_cos, step_sin = tl.cos(angle), tl.sin(angle)
    cos, sin = step_cos, step_sin
    real = grad + g * 2 * Q * num_columns + columns
    imaginary = real + Q * num_columns
    at_zero = tl.load(real, mask=is_column, other=0.0)
    value = tl.zeros((ROWS, COLUMNS), tl.float32) + at_zero[None, :]
    slope = tl.zeros((ROWS, COLUMNS), tl.float32)
    for j in tl.static_range(1, Q):
        a = tl.load(real + j * num_columns, mask=is_column, other=0.0)[None, :]
        b = tl.load(imaginary + j * num_columns, mask=is_column, other=0.0)[None, :]
        value += a * cos + b * sin
        slope += (j * spacing) * (b * cos - a * sin)
        next_cos = cos * step_cos - sin * step_sin
        sin = sin * step_cos + cos * step_sin
        cos = next_cos
    tl.store(x + at, slope * w[:, None], mask=inside)
    tl.store(grad_weight + (g * num_tiles + tile) * num_rows + rows, tl.sum(value, axis=1), mask=is_row)
