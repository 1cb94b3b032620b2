"""Smaller frames by averaging areas, in exact integer arithmetic: the same bytes on every device and in any batch."""

import torch

from alewm.errors import InputError
from alewm.shapes import Tensor, UInt8


def area_downsample(frames: UInt8[Tensor, "*batch Y X 3"], image_size: int) -> UInt8[Tensor, "*batch y x 3"]:
    """`frames` at `image_size` x `image_size`, each pixel the rounded mean of the block it covers.

    Only whole ratios are offered: a block then has equal weights, and training and planning cannot disagree by a
    rounding. Frames that already have the size are returned as they are.
    """
    *batch, height, width, channels = frames.shape
    if (height, width) == (image_size, image_size):
        return frames
    check_image_size(image_size, (height, width))
    k_y, k_x = height // image_size, width // image_size
    # Rows first: they are long runs in memory, and what remains for the columns is k_y times smaller.
    by_rows = frames.reshape(-1, image_size, k_y, width * channels)
    total = by_rows[:, :, 0].to(torch.int32)
    for i in range(1, k_y):
        total += by_rows[:, :, i]
    by_columns = total.reshape(-1, image_size, image_size, k_x, channels)
    total = by_columns[:, :, :, 0].clone()
    for i in range(1, k_x):
        total += by_columns[:, :, :, i]
    area = k_y * k_x
    means = torch.div(total + area // 2, area, rounding_mode="floor")
    return means.to(torch.uint8).reshape(*batch, image_size, image_size, channels)


def check_image_size(image_size: int, stored: tuple[int, int]) -> None:
    """Refuse a size that does not divide the `stored` (Y, X) of the frames."""
    height, width = stored
    if image_size < 1 or height % image_size or width % image_size:
        choices = [n for n in range(1, min(stored) + 1) if height % n == 0 and width % n == 0]
        raise InputError(
            f"Frames of {height} x {width} cannot be averaged down to {image_size} x {image_size}: the size must "
            f"divide them. Choose one of {', '.join(map(str, choices))}."
        )
