"""Pixels as they are stored become the numbers an encoder reads."""

import torch

from alewm.errors import InputError
from alewm.shapes import Float, Tensor

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def normalise_pixels(pixels: Tensor, image_size: int) -> Float[Tensor, "B F Y X 3"]:
    """Pixels with ImageNet's mean and spread removed, shrunk to `image_size`, on the device they came on.

    `pixels` are uint8, or floats in [0, 1]; channels are last as they are stored, or first ([B, F, 3, Y, X]). Images
    larger than the encoder's by a whole factor are averaged down, so that a model for small images also reads what a
    full-size environment draws.
    """
    if pixels.ndim != 5 or 3 not in (pixels.shape[-1], pixels.shape[2]):
        raise InputError(f"Pixels are [B, F, Y, X, 3] or [B, F, 3, Y, X], got {list(pixels.shape)}.")
    if not (pixels.dtype == torch.uint8 or pixels.is_floating_point()):
        raise InputError(f"Pixels are uint8, or floats in [0, 1]; got {pixels.dtype}.")
    x = pixels if pixels.shape[-1] == 3 else pixels.movedim(2, -1)
    B, F, height, width, _ = x.shape
    factor = height // image_size
    if height != width or factor * image_size != height or factor < 1:
        raise InputError(
            f"The encoder reads square images of {image_size} pixels, or a whole multiple of that; got "
            f"{height} x {width}."
        )
    is_stored = not x.is_floating_point()
    x = x.float() if is_stored else x
    if factor > 1:
        x = x.reshape(B, F, image_size, factor, image_size, factor, 3).mean((3, 5))
    mean, std = (torch.tensor(values, dtype=x.dtype, device=x.device) for values in (IMAGENET_MEAN, IMAGENET_STD))
    # In place on the fresh copy: on a CPU, allocating another is what takes the time.
    return (x.mul_(1 / (255 * std)) if is_stored else x / std).sub_(mean / std)
