"""The image encoder: normalised pixels, a pre-norm vision transformer, and its CLS token as the feature.

The patch map runs in full precision whatever the precision of the blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from alewm.config import ADDED_LATER, Count, check_ranges
from alewm.errors import InputError
from alewm.resize import area_downsample
from alewm.shapes import Float, Tensor

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

ROUNDING = 1e-3
"""How far a float pixel may lie outside [0, 1], for images that were resampled."""


class PixelNormaliser(nn.Module):
    """Normalises pixels by ImageNet's mean and std on their own device, and averages larger images down."""

    mean: Tensor
    std: Tensor

    def __init__(self, image_size: int) -> None:
        super().__init__()
        self.image_size = image_size
        # Buffers: a constant made at every call would synchronise with the device.
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD), persistent=False)

    def forward(self, pixels: Tensor) -> Float[Tensor, "B F Y X 3"]:
        """Normalised images of the encoder's size.

        `pixels` are uint8 of the encoder's size or larger, or floats in [0, 1] of exactly that size; channels are last
        as they are stored, or first ([B, F, 3, Y, X]). Larger uint8 images are averaged down by area and rounded, as
        training's loader does, so that a model sees the very numbers it was trained on.
        """
        x = self._checked(pixels)
        if x.is_floating_point():
            x = x / self.std
        else:
            # In place on the new copy: on a CPU another allocation would dominate the time.
            x = area_downsample(x, self.image_size).to(self.mean.dtype).mul_(1 / (255 * self.std))
        return x.sub_(self.mean / self.std)

    def _checked(self, pixels: Tensor) -> Tensor:
        """The pixels with channels last."""
        if pixels.ndim != 5 or 3 not in (pixels.shape[-1], pixels.shape[2]):
            raise InputError(f"Pixels are [B, F, Y, X, 3] or [B, F, 3, Y, X], got {list(pixels.shape)}.")
        x = pixels if pixels.shape[-1] == 3 else pixels.movedim(2, -1)
        if pixels.dtype == torch.uint8:
            return x
        if not pixels.is_floating_point():
            raise InputError(f"Pixels are uint8, or floats in [0, 1]; got {pixels.dtype}.")
        check_float_size(x.shape[2], x.shape[3], self.image_size)
        low, high = extremes(pixels)
        if not (low >= -ROUNDING and high <= 1 + ROUNDING):  # NaN fails both
            raise InputError(
                f"Pixels are uint8, or floats in [0, 1]; got floats from {low:.4g} to {high:.4g}. Give images as "
                f"uint8; the model normalises them."
            )
        return x


def check_float_size(height: int, width: int, image_size: int) -> None:
    """Refuse float images that would have to be resized: only uint8 ones can be, by the average that training took."""
    if (height, width) != (image_size, image_size):
        raise InputError(
            f"Float images must have the encoder's size, {image_size} x {image_size}; got {height} x {width}. Give "
            f"uint8 images of any size from that on: the model averages them down as training did."
        )


def extremes(pixels: Tensor) -> tuple[float, float]:
    """The smallest and the largest number, both NaN where one is."""
    low, high = torch.aminmax(pixels.detach())
    return float(low), float(high)


class PatchMap(nn.Linear):
    """A linear map of patches in its parameters' dtype, inside autocast too.

    In bfloat16 a white pixel is 2.25 instead of 2.2489, in thousands of background pixels of every frame. An encoder
    trained that way sees a shifted picture when it runs in float32: its latents were off by more than a standard
    deviation. The gradient needs less precision: on a GPU that of the weights, which would take twice as long as the
    map itself, is computed in TF32.
    """

    def __init__(self, num_pixels: int, width: int, *, in_bfloat16: bool = False) -> None:
        super().__init__(num_pixels, width)
        self.in_bfloat16 = in_bfloat16
        """For an encoder that was trained with rounded pixels: round everything, as autocast did."""

    def forward(self, patches: Float[Tensor, "N P pixels"]) -> Float[Tensor, "N P W"]:
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
    """a b, of float32 numbers rounded to TF32 where the device has it; opaque to the compiler."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return a @ b
    finally:
        torch.set_float32_matmul_precision(before)


@_rounded_product.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(len(a), b.shape[1])


LAYER_NORM_EPS = 1e-12


@dataclass(frozen=True)
class ViTConfig:
    """Shape of the image encoder; the defaults are ViT-Tiny/14."""

    image_size: Count = 224
    """Side of the square images, in pixels."""
    patch_size: Count = 14
    """Side of the square patches, in pixels."""
    hidden_dim: Count = 192
    """Width W of the tokens, which is also the predictor's."""
    num_blocks: Count = 12
    """Transformer blocks."""
    num_heads: Count = 3
    """Attention heads per block."""
    mlp_dim: Count = 768
    """Hidden width of each block's MLP."""
    patch_map_in_bfloat16: bool = field(default=False, metadata=ADDED_LATER)
    """Map patches in bfloat16 everywhere: for weights that were trained so by others (`PatchMap` has the reason)."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.image_size % self.patch_size:
            raise InputError(f"Patches of {self.patch_size} pixels do not tile an image of {self.image_size}.")
        if self.hidden_dim % self.num_heads:
            raise InputError(f"{self.num_heads} heads do not divide a width of {self.hidden_dim}.")

    @property
    def num_patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2


class SelfAttention(nn.Module):
    """Multi-head attention whose query, key and value maps are parameters of their own but one product."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def _heads_of(self, x: Tensor, *maps: nn.Linear) -> tuple[Tensor, ...]:
        """The maps of x, each [N, heads, L, head width], by one product with the stacked weights."""
        stacked = F.linear(x, torch.cat([m.weight for m in maps]), torch.cat([m.bias for m in maps]))
        per_head = stacked.view(*x.shape[:2], len(maps), self.num_heads, -1)
        return per_head.permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x: Float[Tensor, "N L W"], num_outputs: int | None = None) -> Float[Tensor, "N L_out W"]:
        """The first `num_outputs` tokens (all by default), each attending to every token."""
        if num_outputs is None:
            query, key, value = self._heads_of(x, self.query, self.key, self.value)
        else:
            (query,) = self._heads_of(x[:, :num_outputs], self.query)
            key, value = self._heads_of(x, self.key, self.value)
        attended: Tensor = self.output(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        return attended


class MLP(nn.Module):
    """Two linear maps with an exact GELU between."""

    def __init__(self, width: int, hidden_dim: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, hidden_dim)
        self.narrow = nn.Linear(hidden_dim, width)

    def forward(self, x: Float[Tensor, "*batch W"]) -> Float[Tensor, "*batch W"]:
        narrowed: Tensor = self.narrow(F.gelu(self.widen(x)))
        return narrowed


class ViTBlock(nn.Module):
    """One pre-norm block."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.hidden_dim, eps=LAYER_NORM_EPS)
        self.attention = SelfAttention(config.hidden_dim, config.num_heads)
        self.norm_mlp = nn.LayerNorm(config.hidden_dim, eps=LAYER_NORM_EPS)
        self.mlp = MLP(config.hidden_dim, config.mlp_dim)

    def forward(self, x: Float[Tensor, "N L W"], num_outputs: int | None = None) -> Float[Tensor, "N L_out W"]:
        """The first `num_outputs` tokens (all by default) after attention and MLP."""
        x = x[:, :num_outputs] + self.attention(self.norm_attention(x), num_outputs)
        y: Tensor = x + self.mlp(self.norm_mlp(x))
        return y


def apply_blocks(blocks: Sequence[ViTBlock], x: Float[Tensor, "N L W"]) -> Float[Tensor, "N L W"]:
    """What `blocks` make of x, each as it is written."""
    for block in blocks:
        x = block(x)
    return x


def first_token_after(blocks: Sequence[ViTBlock], x: Float[Tensor, "N L W"]) -> Float[Tensor, "N W"]:
    """The first token after all `blocks`, each as it is written.

    The last block computes only that row: the other tokens are not used.
    """
    *before, last = blocks
    token: Tensor = last(apply_blocks(before, x), 1)[:, 0]
    return token


class ViT(nn.Module):
    """Images to one feature vector each, the CLS token after the final LayerNorm."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_dim
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.position = nn.Parameter(torch.empty(1, config.num_patches + 1, width))
        # A convolution whose stride is its kernel, written as the matrix product it is.
        self.patch_map = PatchMap(3 * config.patch_size**2, width, in_bfloat16=config.patch_map_in_bfloat16)
        self.blocks = nn.ModuleList(ViTBlock(config) for _ in range(config.num_blocks))
        self.norm = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.first_token: Callable[[Sequence[ViTBlock], Tensor], Tensor] = first_token_after
        """Computes the blocks; `alewm.kernels` replaces it by fused kernels."""
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.position, std=0.02)

    def forward(self, images: Float[Tensor, "N Y X 3"]) -> Float[Tensor, "N W"]:
        """The CLS token of each normalised image."""
        return self.read(self.embed(images))

    def read(self, x: Float[Tensor, "N L W"]) -> Float[Tensor, "N W"]:
        """The CLS token after all blocks."""
        blocks = [block for block in self.blocks if isinstance(block, ViTBlock)]
        features: Tensor = self.norm(self.first_token(blocks, x))
        return features

    def embed(self, images: Float[Tensor, "N Y X 3"]) -> Float[Tensor, "N L W"]:
        """The CLS token and the patches of each image, with their positions, in the parameters' dtype.

        Blocks add to this stream. In bfloat16 it would double the rounding noise of the features, which at the start of
        training is already larger than what tells one frame from the next.
        """
        p, side = self.config.patch_size, self.config.image_size // self.config.patch_size
        # Within a patch the order is (channel, row, column), that of a convolution's weight.
        patches = images.reshape(-1, side, p, side, p, 3).permute(0, 1, 3, 5, 2, 4)
        tokens = self.patch_map(patches.flatten(3).flatten(1, 2))
        cls = (self.cls_token + self.position[:, :1]).expand(len(tokens), -1, -1)
        return torch.cat([cls, tokens + self.position[:, 1:]], dim=1)
