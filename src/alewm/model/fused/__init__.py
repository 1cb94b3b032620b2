"""Parts of the encoder's blocks as Triton kernels; `blocks` puts them in the place of plain ones, which they equal."""
