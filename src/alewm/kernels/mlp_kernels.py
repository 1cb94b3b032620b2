"""Triton kernels of an MLP with GELU, forward and backward; `mlp` launches them.

Each is a matrix product with the GELU applied while the tile is on the chip. A program holds ROWS rows, read once, and
walks over the hidden units CHUNK at a time. Offsets within its rows fit into 32 bits, and its arguments point to these
rows. Weights are as `nn.Linear` keeps them: w1 [HIDDEN, width], w2 [width, HIDDEN].

The `_resident` kernels keep the weights of CHUNK hidden units on the chip and walk over blocks of ROWS rows, which the
copy engine of a Hopper GPU loads ahead. As many programs run as the GPU holds at once. Programs of one block are
neighbours, so that all but the first find its rows in the cache. Matrices come as descriptors: the engine reads zeros
beyond the last row and writes nothing there. Rows come in two parts, LEFT columns and the others, each with a
descriptor of its own.
"""

import triton
import triton.language as tl

from alewm.kernels.kernel_parts import gelu_and_slope, load_rows

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit(do_not_specialize=["num_rows"])
def widen(
    x, w1, b1, slope, a, num_rows,
    HIDDEN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """GELU'(h) and a = GELU(h) of h = x w1ᵀ + b1, both in the weights' dtype; b1 is float32."""
    dtype = w1.dtype.element_ty
    block = tl.program_id(0).to(tl.int64)
    rows, num_rows = tl.arange(0, ROWS), (num_rows - block * ROWS).to(tl.int32)
    inside = (rows < num_rows)[:, None]
    x += block * (ROWS * (LEFT + RIGHT))
    slope += block * (ROWS * HIDDEN)
    a += block * (ROWS * HIDDEN)
    on_left, on_right = tl.arange(0, LEFT)[:, None], LEFT + tl.arange(0, RIGHT)[:, None]
    left, right = load_rows(x, rows, num_rows, LEFT, RIGHT)
    for start in range(0, HIDDEN, CHUNK):
        units = start + tl.arange(0, CHUNK)
        into = w1 + units[None, :] * (LEFT + RIGHT)
        wide = tl.dot(left, tl.load(into + on_left), input_precision="ieee")
        wide = tl.dot(right, tl.load(into + on_right), wide, input_precision="ieee")
        value, derivative = gelu_and_slope(wide + tl.load(b1 + units)[None, :])
        to = rows[:, None] * HIDDEN + units[None, :]
        tl.store(slope + to, derivative.to(dtype), mask=inside)
        tl.store(a + to, value.to(dtype), mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def narrow_backward(
    grad_y, w2, slope, grad_h, sums, num_rows,
    HIDDEN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """grad_h = (grad_y w2) slope in the weights' dtype; sums[block of rows] is its sum over them in float32."""
    dtype = w2.dtype.element_ty
    block = tl.program_id(0).to(tl.int64)
    rows, num_rows = tl.arange(0, ROWS), (num_rows - block * ROWS).to(tl.int32)
    inside = (rows < num_rows)[:, None]
    grad_y += block * (ROWS * (LEFT + RIGHT))
    slope += block * (ROWS * HIDDEN)
    grad_h += block * (ROWS * HIDDEN)
    sums += block * HIDDEN
    on_left, on_right = tl.arange(0, LEFT)[:, None] * HIDDEN, (LEFT + tl.arange(0, RIGHT))[:, None] * HIDDEN
    left, right = load_rows(grad_y, rows, num_rows, LEFT, RIGHT)
    at = rows[:, None] * HIDDEN + tl.arange(0, CHUNK)[None, :]
    read = tl.load(slope + at, mask=inside, other=0.0)
    for start in range(0, HIDDEN, CHUNK):
        units = start + tl.arange(0, CHUNK)
        grad = tl.dot(left, tl.load(w2 + on_left + units[None, :]), input_precision="ieee")
        grad = tl.dot(right, tl.load(w2 + on_right + units[None, :]), grad, input_precision="ieee")
        rounded = (grad * read.to(tl.float32)).to(dtype)
        # A chunk ahead: what comes from far arrives while this chunk is finished.
        read = tl.load(slope + at + CHUNK, mask=inside & (start + CHUNK < HIDDEN), other=0.0)
        tl.store(grad_h + at, rounded, mask=inside)
        tl.store(sums + units, tl.sum(rounded.to(tl.float32), axis=0))
        at += CHUNK


# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit(do_not_specialize=["num_blocks"])
def widen_resident(
    x_left, x_right, w1_left, w1_right, b1, slope, a, num_blocks,
    HIDDEN: tl.constexpr, LEFT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """GELU'(h) and a = GELU(h) of h = x w1ᵀ + b1, both in the weights' dtype; b1 is float32."""
    num_chunks: tl.constexpr = HIDDEN // CHUNK
    walk, unit = tl.program_id(0) // num_chunks, (tl.program_id(0) % num_chunks) * CHUNK
    into_left, into_right = w1_left.load([unit, 0]).T, w1_right.load([unit, LEFT]).T
    bias = tl.load(b1 + unit + tl.arange(0, CHUNK))[None, :]
    for block in tl.range(walk, num_blocks, tl.num_programs(0) // num_chunks, num_stages=STAGES):
        row = block * ROWS
        wide = tl.dot(x_left.load([row, 0]), into_left, input_precision="ieee")
        wide = tl.dot(x_right.load([row, LEFT]), into_right, wide, input_precision="ieee")
        value, derivative = gelu_and_slope(wide + bias)
        slope.store([row, unit], derivative.to(slope.dtype))
        a.store([row, unit], value.to(a.dtype))


@triton.jit(do_not_specialize=["num_blocks"])
def narrow_backward_resident(
    grad_left, grad_right, w2_left, w2_right, slope, grad_h, sums, num_blocks,
    HIDDEN: tl.constexpr, LEFT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """grad_h = (grad_y w2) slope in the weights' dtype; sums[walk] is its sum over the rows of one walk in float32."""
    num_chunks: tl.constexpr = HIDDEN // CHUNK
    walk, unit = tl.program_id(0) // num_chunks, (tl.program_id(0) % num_chunks) * CHUNK
    out_left, out_right = w2_left.load([0, unit]), w2_right.load([LEFT, unit])
    # Kept by row until the end: to add rows up, threads wait for each other.
    total = tl.zeros((ROWS, CHUNK), tl.float32)
    for block in tl.range(walk, num_blocks, tl.num_programs(0) // num_chunks, num_stages=STAGES):
        row = block * ROWS
        factor = slope.load([row, unit]).to(tl.float32)
        grad = tl.dot(grad_left.load([row, 0]), out_left, input_precision="ieee")
        grad = tl.dot(grad_right.load([row, LEFT]), out_right, grad, input_precision="ieee")
        rounded = (grad * factor).to(grad_h.dtype)
        grad_h.store([row, unit], rounded)
        total += rounded.to(tl.float32)
    tl.store(sums + walk * HIDDEN + unit + tl.arange(0, CHUNK), tl.sum(total, axis=0))
