"""The map from a transformer's width to the latent, with its normalisation."""

import torch.nn.functional as F
from torch import nn

from alewm.model.batch_norm import BatchNorm
from alewm.shapes import Float, Tensor


class Projector(nn.Module):
    """Linear, BatchNorm, GELU, Linear, on the features of every frame of every window together."""

    def __init__(self, input_dim: int, hidden_dim: int, output_dim: int) -> None:
        super().__init__()
        self.widen = nn.Linear(input_dim, hidden_dim)
        self.norm = BatchNorm(hidden_dim)
        self.narrow = nn.Linear(hidden_dim, output_dim)

    def forward(self, x: Float[Tensor, "B F W"], num_outputs: int | None = None) -> Float[Tensor, "B F D"]:
        """The first `num_outputs` coordinates of the projection (all by default)."""
        hidden = F.gelu(self.norm(self.widen(x.flatten(0, 1))))
        latents = F.linear(hidden, self.narrow.weight[:num_outputs], self.narrow.bias[:num_outputs])
        return latents.view(*x.shape[:2], -1)
