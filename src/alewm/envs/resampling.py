"""Area down-sampling of images, exact in integers, so that every device and every batch gives the same bytes.

Environments draw at their native size. A smaller `image_size` is the area average of that drawing and nothing else: a
stored native frame, down-sampled, is byte for byte the frame a smaller environment draws of the same state, and thin
walls and the dot's sub-pixel position survive as grey levels. Scaling the geometry instead would move edges onto
other pixel centres and make small and large images two different environments.
"""

import math

import torch

from alewm.errors import InputError
from alewm.shapes import Float, Tensor, UInt8


def checked_image_size(image_size: int, native_size: int) -> int:
    """`image_size`, if an image of `native_size` pixels can be area-averaged to it."""
    if not isinstance(image_size, int) or not 1 <= image_size <= native_size:
        raise InputError(
            f"The image size must be an integer from 1 to {native_size} (the size the environment draws at), "
            f"got {image_size!r}."
        )
    return image_size


def granule(native_size: int, image_size: int) -> tuple[int, int]:
    """The smallest run of native pixels that becomes a whole number of small ones, and that number.

    From 224 to 64 it is (7, 2).
    """
    common = math.gcd(native_size, image_size)
    return native_size // common, image_size // common


def area_weights(num_native: int, native_granule: int, small_granule: int) -> Float[Tensor, "small native"]:
    """How much of each native pixel lies in each small one, in units that make all entries integers.

    Every row sums to `native_granule`. Entries, products and sums stay far below 2^53, so float64 arithmetic on them is
    exact in any order of summation.
    """
    num_small = num_native * small_granule // native_granule
    small = torch.arange(num_small, dtype=torch.float64)[:, None]
    native = torch.arange(num_native, dtype=torch.float64)
    first, last = small * native_granule, (small + 1) * native_granule
    overlap = torch.minimum(last, (native + 1) * small_granule) - torch.maximum(first, native * small_granule)
    return overlap.clamp(min=0)


def area_average(
    plane: UInt8[Tensor, "*batch native native"], weights: Float[Tensor, "small native"]
) -> UInt8[Tensor, "*batch small small"]:
    """The area averages of one-channel images under `area_weights`, rounded to the nearest level, halves up."""
    area = weights[0].sum().square()
    sums = weights @ plane.to(weights.dtype) @ weights.mT
    return (sums / area + 0.5).to(torch.uint8)


def downsample(
    frames: UInt8[Tensor, "*batch native native 3"], image_size: int
) -> UInt8[Tensor, "*batch {image_size} {image_size} 3"]:
    """`frames` at `image_size`: what the environment that drew them would draw at that size."""
    native_size = frames.shape[-2]
    checked_image_size(image_size, native_size)
    weights = area_weights(native_size, *granule(native_size, image_size)).to(frames.device)
    return area_average(frames.movedim(-1, 0), weights).movedim(0, -1).contiguous()
