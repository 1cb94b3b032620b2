"""What the Triton kernels of the encoder's half-blocks share: rows in two parts, LayerNorm there and back, GELU.

A row of width LEFT + RIGHT is held as two tiles, because a tile's sides are powers of two: 192 columns are 128 and 64,
where one padded tile of 256 would waste a quarter of every product.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


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
def layer_norm_backward(
    grad_left, grad_right, x, scale, above, grad_x, sums, rows, num_rows, mean, rstd,
    LEFT: tl.constexpr, RIGHT: tl.constexpr,
):  # fmt: skip
    """grad_x = above + the gradient through LN; sums gets what these rows give to LN's scale, then to its shift."""
    left, right = load_rows(x, rows, num_rows, LEFT, RIGHT)
    left, right = (left - mean) * rstd, (right - mean) * rstd
    store_columns(sums, grad_left * left, grad_right * right, LEFT, RIGHT)
    store_columns(sums + LEFT + RIGHT, grad_left, grad_right, LEFT, RIGHT)
    scale_left, scale_right = load_columns(scale, LEFT, RIGHT)
    grad_left, grad_right = grad_left * scale_left, grad_right * scale_right
    width: tl.constexpr = LEFT + RIGHT
    mean_grad = (tl.sum(grad_left, axis=1) + tl.sum(grad_right, axis=1))[:, None] / width
    along = (tl.sum(grad_left * left, axis=1) + tl.sum(grad_right * right, axis=1))[:, None] / width
    above_left, above_right = load_rows(above, rows, num_rows, LEFT, RIGHT)
    left = above_left + rstd * (grad_left - mean_grad - left * along)
    right = above_right + rstd * (grad_right - mean_grad - right * along)
    store_rows(grad_x, left, right, rows, num_rows, LEFT, RIGHT)


@triton.jit
def normal_tail(h):
    """1 - Φ(|h|) to 1e-7, and exp(-h²/2): the rational form 7.1.26 of Abramowitz and Stegun.

    The exponential serves the density too, which an error function would not share. Constants of scale (the root in
    erf(h / √2), base two, the half) are folded into the others, and the reciprocal is a root's: one instruction.
    """
    z = tl.abs(h) * 0.8493218002880191
    bell = tl.exp2(-z * z)
    u = 1.0 + 0.2727374804 * z
    t = tl.rsqrt(u * u)
    series = t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
    return series * bell, bell


@triton.jit
def gelu(h):
    """h Φ(h)."""
    tail, _ = normal_tail(h)
    return tl.maximum(h, 0.0) - tl.abs(h) * tail


@triton.jit
def gelu_and_slope(h):
    """h Φ(h) and its derivative Φ(h) + h φ(h)."""
    tail, bell = normal_tail(h)
    cdf = tl.where(h >= 0, 1.0 - tail, tail)
    return h * cdf, cdf + h * (0.3989422804014327 * bell)
