"""The first map of an encoder, from the pixels of a patch to a token, in full precision whatever the rest is in."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from alewm.shapes import Float, Tensor


class PatchMap(nn.Linear):
    """A linear map of patches in its parameters' dtype, inside autocast too.

    In bfloat16 a white pixel would be 2.25 where it is 2.2489, and a background is white in thousands of pixels of
    every frame: an encoder trained on that reads a shifted picture wherever it is used in float32, and its latents were
    off by more than a standard deviation. Only values matter so: on a GPU the gradient of the weights, which would take
    twice as long as the map itself, is a product of numbers rounded to TF32.
    """

    def __init__(self, num_pixels: int, width: int, *, in_bfloat16: bool = False) -> None:
        super().__init__(num_pixels, width)
        self.in_bfloat16 = in_bfloat16
        """For an encoder that was trained with rounded pixels: round everything, as autocast did."""

    def forward(self, patches: Float[Tensor, "N P pixels"]) -> Float[Tensor, "N P W"]:
        """The token of each patch."""
        with torch.autocast(patches.device.type, enabled=False):
            if self.in_bfloat16:
                rounded = (tensor.bfloat16() for tensor in (patches, self.weight, self.bias))
                return F.linear(*rounded).to(self.weight.dtype)
            if patches.is_cuda and not patches.requires_grad and patches.dtype == torch.float32:
                return map_with_rounded_gradient(patches, self.weight, self.bias)
            return super().forward(patches)


def map_with_rounded_gradient(
    patches: Float[Tensor, "N P pixels"], weight: Float[Tensor, "W pixels"], bias: Float[Tensor, "W"]
) -> Float[Tensor, "N P W"]:
    """`F.linear` of patches that need no gradient; that of the weights is rounded where the device has TF32."""
    mapped: Tensor = _Map.apply(patches, weight, bias)  # type: ignore[no-untyped-call]
    return mapped


class _Map(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, patches: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(patches)
        return F.linear(patches, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        (patches,) = ctx.saved_tensors
        rows = grad.flatten(0, 1)
        return None, _rounded_product(rows.mT, patches.flatten(0, 1)), rows.sum(0)


@torch.library.custom_op("alewm::rounded_product", mutates_args=())
def _rounded_product(a: Tensor, b: Tensor) -> Tensor:
    """a b, of float32 numbers rounded to TF32 where the device has it; a compiler looks no further than here."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return a @ b
    finally:
        torch.set_float32_matmul_precision(before)


@_rounded_product.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(len(a), b.shape[1])
