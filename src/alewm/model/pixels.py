"""Pixels as they are stored become the numbers an encoder reads."""

import torch
from torch import nn

from alewm.errors import InputError
from alewm.shapes import Float, Tensor

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

ROUNDING = 1e-3
"""How far a float pixel may lie outside [0, 1], for images that were resampled."""


class PixelNormaliser(nn.Module):
    """Removes ImageNet's mean and spread on the device the pixels are on, and averages large images down."""

    mean: Tensor
    std: Tensor

    def __init__(self, image_size: int) -> None:
        super().__init__()
        self.image_size = image_size
        # Buffers, because a constant made at every call would make the processor wait for the device.
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD), persistent=False)

    def forward(self, pixels: Tensor) -> Float[Tensor, "B F Y X 3"]:
        """Normalised images of the encoder's size.

        `pixels` are uint8, or floats in [0, 1]; channels are last as they are stored, or first ([B, F, 3, Y, X]).
        Images larger than the encoder's by a whole factor are averaged down, so that a model for small images also
        reads what a full-size environment draws.
        """
        x, factor = self._checked(pixels)
        is_stored = not x.is_floating_point()
        x = x.to(self.mean.dtype) if is_stored else x
        if factor > 1:
            B, F, size = *x.shape[:2], self.image_size
            x = x.reshape(B, F, size, factor, size, factor, 3).mean((3, 5))
        # In place on the fresh copy: on a CPU, allocating another is what takes the time.
        x = x.mul_(1 / (255 * self.std)) if is_stored else x / self.std
        return x.sub_(self.mean / self.std)

    def _checked(self, pixels: Tensor) -> tuple[Tensor, int]:
        """Pixels with channels last, and how many times larger than the encoder's images they are."""
        if pixels.ndim != 5 or 3 not in (pixels.shape[-1], pixels.shape[2]):
            raise InputError(f"Pixels are [B, F, Y, X, 3] or [B, F, 3, Y, X], got {list(pixels.shape)}.")
        if not (pixels.dtype == torch.uint8 or pixels.is_floating_point()):
            raise InputError(f"Pixels are uint8, or floats in [0, 1]; got {pixels.dtype}.")
        # Reading a GPU's numbers here would make the processor wait for it.
        if pixels.is_floating_point() and pixels.device.type == "cpu":
            _check_unit_range(pixels)
        x = pixels if pixels.shape[-1] == 3 else pixels.movedim(2, -1)
        height, width = x.shape[2:4]
        factor = height // self.image_size
        if height != width or factor * self.image_size != height or factor < 1:
            raise InputError(
                f"The encoder reads square images of {self.image_size} pixels, or a whole multiple of that; got "
                f"{height} x {width}. Average uint8 images down as training does: "
                f"alewm.resize.area_downsample(torch.as_tensor(image), {self.image_size})."
            )
        return x, factor


def _check_unit_range(pixels: Float[Tensor, "B F Y X 3"]) -> None:
    low, high = (float(extreme) for extreme in torch.aminmax(pixels.detach()))
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):  # NaN fails both
        raise InputError(
            f"Pixels are uint8, or floats in [0, 1]; got floats from {low:.4g} to {high:.4g}. Give images as uint8; "
            f"the model normalises them."
        )
