"""Fast paths: every Triton and C kernel, beside the reference it must agree with (the rasteriser's is in tests)."""
