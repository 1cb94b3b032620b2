"""The predictor: a short history of latents and actions to the next latents."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from alewm.errors import InputError
from alewm.model.adaln import AdaLNBlock
from alewm.ranges import Count, Share, check_ranges
from alewm.shapes import Bool, Float, Tensor


@dataclass(frozen=True)
class PredictorConfig:
    """Shape of the predictor; its width W is the encoder's."""

    num_blocks: Count = 6
    """Transformer blocks."""
    num_heads: Count = 16
    """Attention heads per block."""
    head_dim: Count = 64
    """Width of one head; heads times head width need not be W."""
    mlp_dim: Count = 2048
    """Hidden width of each block's MLP."""
    dropout: Share = 0.1
    """Share of entries dropped while training, in the attention weights and after every map."""
    context_length: Count = 3
    """Most positions the predictor sees at once."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Predictor(nn.Module):
    """A causal stack of action-conditioned blocks of width W."""

    def __init__(self, config: PredictorConfig, latent_dim: int, width: int) -> None:
        super().__init__()
        if latent_dim > width:
            raise InputError(
                f"A latent of {latent_dim} coordinates is wider than the predictor ({width}); "
                f"choose a latent width of at most {width} or a wider encoder."
            )
        self.config, self.width = config, width
        # Where the latent is as wide as the predictor there is no map, and the parameters are LeWM's one to one.
        self.input_map = nn.Linear(latent_dim, width) if latent_dim < width else None
        self.position = nn.Parameter(torch.randn(1, config.context_length, width))
        self.blocks = nn.ModuleList(
            AdaLNBlock(width, config.num_heads, config.head_dim, config.mlp_dim) for _ in range(config.num_blocks)
        )
        self.norm = nn.LayerNorm(width)

    def dropout_draws(self, num_positions: int) -> int:
        """Dropout decisions per sample in one pass; none where the rate is zero."""
        if self.config.dropout == 0:
            return 0
        return sum(sum(block.dropout_draws(num_positions)) for block in self.blocks if isinstance(block, AdaLNBlock))

    def embed(self, z: Float[Tensor, "B T k"]) -> Float[Tensor, "B T W"]:
        """Latents at the predictor's width; the coordinates beyond the k given count as zero."""
        k = z.shape[-1]
        if self.input_map is None:
            return F.pad(z, (0, self.width - k))
        return F.linear(z, self.input_map.weight[:, :k], self.input_map.bias)

    def forward(
        self,
        z: Float[Tensor, "B T k"],
        condition: Float[Tensor, "B T W"],
        keep: Bool[Tensor, "B draws"] | None = None,
    ) -> Float[Tensor, "B T W"]:
        """What is known of the latent after each position, from it and those before it.

        `keep` holds one dropout decision per draw (`dropout_draws`), made outside so that they come from the run's own
        generator and do not depend on how the batch is spread over processes; without it nothing is dropped.
        """
        T = z.shape[1]
        if not 1 <= T <= self.config.context_length:
            raise InputError(f"The predictor sees 1 to {self.config.context_length} positions, got {T}.")
        x = self.embed(z) + self.position[:, :T]
        per_block = [None] * len(self.blocks) if keep is None else keep.chunk(len(self.blocks), dim=1)
        for block, keep_block in zip(self.blocks, per_block, strict=True):
            x = block(x, condition, keep_block, self.config.dropout)
        normalised: Tensor = self.norm(x)
        return normalised
