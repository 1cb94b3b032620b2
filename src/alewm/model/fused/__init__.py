"""Half-blocks of the encoder as Triton kernels: what a half-block computes between reading and writing its rows stays on
the chip. `blocks` puts them in the place of the plain ones, which they equal up to rounding.
"""
