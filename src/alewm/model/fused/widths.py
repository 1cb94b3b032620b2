"""Which encoders the kernels take."""

from alewm.model.vit import ViTConfig


def two_parts(width: int) -> tuple[int, int]:
    """`width` as a sum of two powers of two, the larger first; (0, 0) where it is none.

    >>> two_parts(192), two_parts(64), two_parts(80), two_parts(112)
    ((128, 64), (32, 32), (64, 16), (0, 0))
    """
    largest = 1 << (width.bit_length() - 1)
    left = largest if width > largest else largest // 2
    right = width - left
    return (left, right) if right and right & (right - 1) == 0 else (0, 0)


def why_not_fused(config: ViTConfig) -> str | None:
    """The reason the kernels cannot compute such an encoder's blocks, or None."""
    width, hidden, patches = config.hidden_dim, config.mlp_dim, config.num_patches
    if patches not in (64, 128, 256):
        return f"{patches} patches are not 64, 128 or 256"
    if width != 64 * config.num_heads:
        return f"heads are {width // config.num_heads} wide, not 64"
    if hidden % 64:
        return f"a hidden width of {hidden} is not a multiple of 64"
    if width > 256:
        return f"rows of {width} do not fit on the chip beside their sums"
    return None if all(two_parts(width)) else f"{width} is not the sum of two powers of two"
