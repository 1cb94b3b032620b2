"""The transformer block conditioned on actions by adaptive layer normalisation."""

import torch
import torch.nn.functional as F
from torch import nn

from alewm.regularizers.precision import at_least_float32
from alewm.shapes import Bool, Float, Tensor

MODULATED_NORM_EPS = 1e-6


def drop(x: Float[Tensor, "*shape"], keep: Bool[Tensor, "B draws"] | None, rate: float) -> Float[Tensor, "*shape"]:
    """x with the entries outside `keep` zeroed and the others rescaled; x itself where `keep` is None."""
    return x if keep is None else x * keep.reshape(x.shape) * (1 / (1 - rate))


class CausalAttention(nn.Module):
    """Attention over a handful of positions, written out.

    A general kernel pads such short sequences to its tile; products and sums over at most a few positions fuse instead.
    """

    def __init__(self, width: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * num_heads * head_dim, bias=False)
        self.output = nn.Linear(num_heads * head_dim, width)

    def forward(
        self, x: Float[Tensor, "B T W"], keep: Bool[Tensor, "B draws"] | None, rate: float
    ) -> Float[Tensor, "B T W"]:
        """Each position's mixture of itself and those before it."""
        T = x.shape[1]
        query, key, value = self.qkv(self.norm(x)).unflatten(-1, (3, self.num_heads, -1)).unbind(2)
        scores = (at_least_float32(query[:, :, None]) * at_least_float32(key[:, None])).sum(-1) * query.shape[
            -1
        ] ** -0.5
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future[:, :, None], -torch.inf).softmax(2)
        weights = drop(weights, keep, rate).to(value.dtype)
        mixed = (weights[..., None] * value[:, None]).sum(2)
        attended: Tensor = self.output(mixed.flatten(2).to(value.dtype))
        return attended


class ConditionedMLP(nn.Module):
    """LayerNorm, Linear, GELU, Linear with dropout after the GELU."""

    def __init__(self, width: int, hidden_dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, hidden_dim)
        self.narrow = nn.Linear(hidden_dim, width)

    def forward(
        self, x: Float[Tensor, "B T W"], keep: Bool[Tensor, "B draws"] | None, rate: float
    ) -> Float[Tensor, "B T W"]:
        """The MLP of each position."""
        narrowed: Tensor = self.narrow(drop(F.gelu(self.widen(self.norm(x))), keep, rate))
        return narrowed


class AdaLNBlock(nn.Module):
    """Attention and MLP, each shifted, scaled and gated by the action of its position.

    The modulation starts at zero weight and bias, so that a new block is the identity.
    """

    def __init__(self, width: int, num_heads: int, head_dim: int, mlp_dim: int) -> None:
        super().__init__()
        self.width, self.num_heads, self.mlp_dim = width, num_heads, mlp_dim
        self.attention = CausalAttention(width, num_heads, head_dim)
        self.mlp = ConditionedMLP(width, mlp_dim)
        self.modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def dropout_draws(self, num_positions: int) -> list[int]:
        """Entries per sample that dropout decides on: attention weights, attention output, MLP hidden, MLP output."""
        T = num_positions
        return [T * T * self.num_heads, T * self.width, T * self.mlp_dim, T * self.width]

    def forward(
        self,
        x: Float[Tensor, "B T W"],
        condition: Float[Tensor, "B T W"],
        keep: Bool[Tensor, "B draws"] | None = None,
        rate: float = 0.0,
    ) -> Float[Tensor, "B T W"]:
        """x after both residual branches; `keep` holds this block's dropout decisions, None for no dropout."""
        keep_weights = keep_attended = keep_hidden = keep_output = None
        if keep is not None:
            draws = self.dropout_draws(x.shape[1])
            keep_weights, keep_attended, keep_hidden, keep_output = torch.split(keep, draws, dim=1)
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.modulation(F.silu(condition)).chunk(6, dim=-1)
        attended = self.attention(self._modulate(x, shift_a, scale_a), keep_weights, rate)
        x = x + gate_a * drop(attended, keep_attended, rate)
        output = self.mlp(self._modulate(x, shift_m, scale_m), keep_hidden, rate)
        gated: Tensor = gate_m * drop(output, keep_output, rate)
        return x + gated

    def _modulate(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        return F.layer_norm(x, (self.width,), eps=MODULATED_NORM_EPS) * (1 + scale) + shift
