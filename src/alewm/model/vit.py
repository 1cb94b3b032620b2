"""The image encoder: a pre-norm vision transformer read out at its CLS token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

from alewm.config import ADDED_LATER
from alewm.errors import InputError
from alewm.model.attention import attend
from alewm.model.patch_map import PatchMap
from alewm.ranges import Count, check_ranges
from alewm.shapes import Float, Tensor

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
        """Patches per image."""
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
        attended: Tensor = self.output(attend(query, key, value).transpose(1, 2).flatten(2))
        return attended


class MLP(nn.Module):
    """Two linear maps with an exact GELU between."""

    def __init__(self, width: int, hidden_dim: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, hidden_dim)
        self.narrow = nn.Linear(hidden_dim, width)

    def forward(self, x: Float[Tensor, "*batch W"]) -> Float[Tensor, "*batch W"]:
        """The MLP of every token."""
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


def one_after_the_other(blocks: Sequence[ViTBlock], x: Float[Tensor, "N L W"]) -> Float[Tensor, "N L W"]:
    """What `blocks` make of x, each as it is written."""
    for block in blocks:
        x = block(x)
    return x


def first_token_after(blocks: Sequence[ViTBlock], x: Float[Tensor, "N L W"]) -> Float[Tensor, "N W"]:
    """The first token after all `blocks`, each as it is written.

    The last block computes only that row: the other tokens it would give are read by nobody.
    """
    *before, last = blocks
    token: Tensor = last(one_after_the_other(before, x), 1)[:, 0]
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
        """How the blocks are computed; `alewm.model.fused` has another way."""
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
