"""Smaller frames by averaging areas, in exact integer arithmetic: the same bytes on every device and in any batch.

Environments draw at their native size. A smaller `image_size` is the area average of that drawing and nothing else: a
stored native frame, downsampled, is byte for byte the frame a smaller environment draws of the same state, and thin
walls and the dot's sub-pixel position survive as grey levels. Scaling the geometry instead would move edges onto other
pixel centres and make small and large images two different environments.
"""

import math

import torch

from alewm.errors import InputError
from alewm.shapes import Float, Int, Tensor, UInt8


def check_image_size(image_size: int, height: int, width: int) -> None:
    """Refuse an `image_size` to which frames of `height` x `width` pixels cannot be area-averaged."""
    if not isinstance(image_size, int) or not 1 <= image_size <= min(height, width):
        raise InputError(
            f"Frames of {height} x {width} cannot be averaged down to {image_size} x {image_size}; the image size is "
            f"an integer from 1 to {min(height, width)}."
        )


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


def area_downsample(frames: UInt8[Tensor, "*batch Y X 3"], image_size: int) -> UInt8[Tensor, "*batch y x 3"]:
    """`frames` at `image_size` x `image_size`, each pixel the mean of the area it covers, rounded, halves up.

    Frames that already have the size are returned as they are.
    """
    *batch, height, width, channels = frames.shape
    if (height, width) == (image_size, image_size):
        return frames
    check_image_size(image_size, height, width)
    # Rows first: they are long runs in memory, and what remains for the columns is smaller.
    by_rows, rows_per_sum = _area_sums(frames.reshape(-1, height, width * channels), image_size)
    by_area, columns_per_sum = _area_sums(by_rows.reshape(-1, width, channels), image_size)
    area = rows_per_sum * columns_per_sum
    means = torch.div(by_area + area // 2, area, rounding_mode="floor")
    return means.to(torch.uint8).reshape(*batch, image_size, image_size, channels)


def _area_sums(values: Tensor, size: int) -> tuple[Int[Tensor, "N size M"], int]:
    """Weighted sums of `values` `[N, n, M]` over the `size` equal areas of its middle axis, and the weight of one sum.

    With n : size = p : q in lowest terms, p inputs make q outputs; in units of 1 / q, input i covers [i q, (i + 1) q)
    and output j covers [j p, (j + 1) p), so that all overlaps are integers and each output's add up to p.
    """
    common = math.gcd(values.shape[1], size)
    p, q = values.shape[1] // common, size // common
    inputs = values.reshape(len(values), common, p, values.shape[2])
    sums = torch.zeros(len(values), common, q, values.shape[2], dtype=torch.int32, device=values.device)
    for j in range(q):
        for i in range(j * p // q, -(-(j + 1) * p // q)):
            overlap = min((j + 1) * p, (i + 1) * q) - max(j * p, i * q)
            sums[:, :, j].add_(inputs[:, :, i], alpha=overlap)
    return sums.reshape(len(values), size, values.shape[2]), p
