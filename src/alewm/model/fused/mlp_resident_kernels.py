"""The kernels of `mlp_kernels` with weights that stay: rows come by, moved by the copy engine of a Hopper GPU.

As many programs as the GPU runs at once. Each keeps the weights of CHUNK hidden units on the chip and walks over blocks
of ROWS rows; the next blocks are on their way while one is computed. Programs of one block are neighbours, so that all
but the first find its rows in the cache. Matrices come as descriptors, by which the engine finds a tile: it reads zeros
beyond the last row and writes nothing there. Rows are read in two parts, FIRST columns and the others, each with a
descriptor of its own.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

from alewm.model.fused.kernel_parts import gelu_and_slope


@triton.jit(do_not_specialize=["num_blocks"])
def widen_resident(
    x_first, x_second, w1_first, w1_second, b1, slope, a, num_blocks,
    FIRST: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """GELU'(h) and a = GELU(h) of h = x w1ᵀ + b1, both in the weights' dtype; b1 is float32."""
    unit = (tl.program_id(0) % PARTS) * CHUNK
    into_first, into_second = w1_first.load([unit, 0]).T, w1_second.load([unit, FIRST]).T
    bias = tl.load(b1 + unit + tl.arange(0, CHUNK))[None, :]
    for block in tl.range(tl.program_id(0) // PARTS, num_blocks, tl.num_programs(0) // PARTS, num_stages=STAGES):
        row = block * ROWS
        wide = tl.dot(x_first.load([row, 0]), into_first, input_precision="ieee")
        wide = tl.dot(x_second.load([row, FIRST]), into_second, wide, input_precision="ieee")
        value, derivative = gelu_and_slope(wide + bias)
        slope.store([row, unit], derivative.to(slope.dtype))
        a.store([row, unit], value.to(a.dtype))


@triton.jit(do_not_specialize=["num_blocks"])
def narrow_backward_resident(
    grad_first, grad_second, w2_first, w2_second, slope, grad_h, sums, num_blocks,
    HIDDEN: tl.constexpr, FIRST: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """grad_h = (grad_y w2) slope in the weights' dtype; sums[walk] is its sum over the rows of one walk in float32."""
    walk, unit = tl.program_id(0) // PARTS, (tl.program_id(0) % PARTS) * CHUNK
    out_first, out_second = w2_first.load([0, unit]), w2_second.load([FIRST, unit])
    # Kept by row until the end: to add rows up, threads wait for each other.
    total = tl.zeros((ROWS, CHUNK), tl.float32)
    for block in tl.range(walk, num_blocks, tl.num_programs(0) // PARTS, num_stages=STAGES):
        row = block * ROWS
        factor = slope.load([row, unit]).to(tl.float32)
        grad = tl.dot(grad_first.load([row, 0]), out_first, input_precision="ieee")
        grad = tl.dot(grad_second.load([row, FIRST]), out_second, grad, input_precision="ieee")
        rounded = (grad * factor).to(grad_h.dtype)
        grad_h.store([row, unit], rounded)
        total += rounded.to(tl.float32)
    tl.store(sums + walk * HIDDEN + unit + tl.arange(0, CHUNK), tl.sum(total, axis=0))
