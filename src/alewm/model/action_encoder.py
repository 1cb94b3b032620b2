"""Grouped actions to the vectors that condition the predictor."""

import torch.nn.functional as F
from torch import nn

from alewm.shapes import Float, Tensor


class ActionEncoder(nn.Module):
    """One embedding per action block (the actions between two frames, flattened)."""

    BOTTLENECK_DIM = 10
    """Fixed, whatever the width of the action block."""

    def __init__(self, action_dim: int, width: int) -> None:
        super().__init__()
        self.compress = nn.Linear(action_dim, self.BOTTLENECK_DIM)
        self.widen = nn.Linear(self.BOTTLENECK_DIM, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, actions: Float[Tensor, "*batch A"]) -> Float[Tensor, "*batch W"]:
        """The embedding of each block."""
        embedded: Tensor = self.narrow(F.silu(self.widen(self.compress(actions))))
        return embedded
