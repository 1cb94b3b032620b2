"""Which widths the kernels take."""


def two_parts(width: int) -> tuple[int, int]:
    """`width` as a sum of two powers of two, the larger first; (0, 0) where it is none.

    >>> two_parts(192), two_parts(64), two_parts(80), two_parts(112)
    ((128, 64), (32, 32), (64, 16), (0, 0))
    """
    largest = 1 << (width.bit_length() - 1)
    left = largest if width > largest else largest // 2
    right = width - left
    return (left, right) if right and right & (right - 1) == 0 else (0, 0)


def why_not_fused(width: int, hidden: int) -> str | None:
    """The reason blocks of that width and hidden width cannot be fused, or None."""
    if width % 64 or hidden % 64:
        return f"widths of {width} and {hidden} are not multiples of 64"
    if width > 256:
        return f"rows of {width} do not fit on the chip beside their sums"
    return None if all(two_parts(width)) else f"{width} is not the sum of two powers of two"
