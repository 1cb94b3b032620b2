"""What the Triton kernels of the encoder share: rows in two parts, their LayerNorm, and GELU with its derivative.

A row of width LEFT + RIGHT is held as two tiles, because a tile's sides are powers of two: 192 columns are 128 and 64,
where one padded tile of 256 would waste a quarter of every product.
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
