"""Triton kernels of the encoder that treat tokens one by one: residual sum with LayerNorm, and the MLP with GELU.

`encoder_blocks.add_norm` and `encoder_blocks.mlp` launch them. A row of width LEFT + RIGHT is held as two tiles,
because a tile's sides are powers of two: 192 columns are 128 and 64, where one padded tile of 256 would waste a quarter
of every product.

The MLP's kernels are matrix products with the GELU applied while the tile is on the chip. A program holds ROWS rows,
read once, and walks over the hidden units CHUNK at a time. Offsets within its rows fit into 32 bits, and its arguments
point to these rows. Weights are as `nn.Linear` keeps them: w1 [HIDDEN, width], w2 [width, HIDDEN].

The `_resident` kernels keep the weights of CHUNK hidden units on the chip and walk over blocks of ROWS rows, which the
copy engine of a Hopper GPU loads ahead. As many programs run as the GPU holds at once. Programs of one block are
neighbours, so that all but the first find its rows in the cache. Matrices come as descriptors: the engine reads zeros
beyond the last row and writes nothing there.
"""

import triton
import triton.language as tl

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit
def load_rows(source, rows, num_rows, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """The two parts of `rows`; those beyond the last are zero."""
    at = source + rows[:, None] * (LEFT + RIGHT)
    inside = (rows < num_rows)[:, None]
    left = tl.load(at + tl.arange(0, LEFT)[None, :], mask=inside, other=0.0)
    right = tl.load(at + LEFT + tl.arange(0, RIGHT)[None, :], mask=inside, other=0.0)
    return left, right


@triton.jit
def store_rows(target, left, right, rows, num_rows, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """Write both parts of `rows` in the target's dtype."""
    at = target + rows[:, None] * (LEFT + RIGHT)
    inside = (rows < num_rows)[:, None]
    tl.store(at + tl.arange(0, LEFT)[None, :], left.to(target.dtype.element_ty), mask=inside)
    tl.store(at + LEFT + tl.arange(0, RIGHT)[None, :], right.to(target.dtype.element_ty), mask=inside)


@triton.jit
def load_columns(source, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """The two parts of a vector, each as a row of one."""
    return (
        tl.load(source + tl.arange(0, LEFT))[None, :],
        tl.load(source + LEFT + tl.arange(0, RIGHT))[None, :],
    )


@triton.jit
def store_columns(target, left, right, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """Write the sum over rows of both parts."""
    tl.store(target + tl.arange(0, LEFT), tl.sum(left, axis=0))
    tl.store(target + LEFT + tl.arange(0, RIGHT), tl.sum(right, axis=0))


@triton.jit
def moments(left, right, eps, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """Mean and inverse standard deviation of every row."""
    mean = (tl.sum(left, axis=1) + tl.sum(right, axis=1))[:, None] / (LEFT + RIGHT)
    squares = tl.sum((left - mean) * (left - mean), axis=1) + tl.sum((right - mean) * (right - mean), axis=1)
    return mean, 1.0 / tl.sqrt(squares[:, None] / (LEFT + RIGHT) + eps)


@triton.jit
def layer_norm(left, right, scale, shift, mean, rstd, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """Both parts of LN(x) with its scale and shift."""
    scale_left, scale_right = load_columns(scale, LEFT, RIGHT)
    shift_left, shift_right = load_columns(shift, LEFT, RIGHT)
    return (left - mean) * rstd * scale_left + shift_left, (right - mean) * rstd * scale_right + shift_right


@triton.jit
def normal_tail(h):
    """1 - Φ(|h|) as a power of two, whose exponent is a polynomial of |h|; exact at zero, and zero far away.

    GELU and its derivative made with it are right to 1e-6, a thousandth of bfloat16's rounding, for half the
    instructions of a rational form: the rows wait for arithmetic as long as for memory. The coefficients minimise the
    largest error of |h| (1 - Φ(|h|)) and of 1 - Φ(|h|).
    """
    u = tl.abs(h)
    series = -0.459368184 + u * (-0.0523880647 + u * (0.00730067956 + u * -0.00050287077))
    return tl.exp2(-1.0 + u * (-1.15107016 + u * series))


@triton.jit
def gelu_and_slope(h):
    """GELU and its derivative, h Φ(h) and Φ(h) + h φ(h), which share Φ."""
    tail = normal_tail(h)
    below = tl.where(h >= 0, 1.0 - tail, tail)
    return h * below, below + h * tl.exp2(h * 0.7213475204444817 * -h - 1.3257480647361592)


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
    # Sums are kept per row until the end: a reduction over rows synchronises threads.
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
        # Prefetch the next chunk while this one is computed.
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
    # Kept per row until the end: a reduction over rows synchronises threads.
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
