"""The kernels of `mlp_kernels` with weights that stay: rows come by, moved by the copy engine of a Hopper GPU.

As many programs as the GPU runs at once. Each keeps the weights of CHUNK hidden units on the chip and walks over blocks
of ROWS rows; the next blocks are on their way while one is computed. Programs of one block are neighbours, so that all
but the first find its rows in the cache. Matrices come as descriptors, by which the engine finds a tile: it reads zeros
beyond the last row and writes nothing there. Rows come in two parts, LEFT columns and the others, each by a descriptor
of its own.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

from alewm.model.fused.kernel_parts import gelu_and_slope


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
