"""Half-blocks of the encoder as Triton kernels; `blocks` puts them in the place of plain ones, which they equal.

What a half-block computes between reading its rows and writing them stays on the chip.
"""
