"""The transformer block conditioned on actions by adaptive layer normalisation."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from alewm.precision import at_least_float32
from alewm.shapes import Bool, Float, Tensor

MODULATED_NORM_EPS = 1e-6


def drop(x: Float[Tensor, "*shape"], keep: Bool[Tensor, "B draws"] | None, rate: float) -> Float[Tensor, "*shape"]:
    """x with the entries outside `keep` zeroed and the others rescaled; x itself where `keep` is None."""
    return x if keep is None else x * keep.reshape(x.shape) * (1 / (1 - rate))


class Memory(NamedTuple):
    """What attention keeps of the positions it has seen."""

    key: Float[Tensor, "B T heads head"]
    value: Float[Tensor, "B T heads head"]


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
        return self._mix(*self._heads_of(x), keep, rate)

    def extend(
        self, x: Float[Tensor, "B T W"], past: Memory | None, num_outputs: int
    ) -> tuple[Float[Tensor, "B T_out W"], Memory]:
        """The last `num_outputs` of these positions after attention to all before them, `past` ones included."""
        query, key, value = self._heads_of(x)
        if past is not None:
            key, value = torch.cat([past.key, key], 1), torch.cat([past.value, value], 1)
        return self._mix(query[:, -num_outputs:], key, value, None, 0.0), Memory(key, value)

    def _heads_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.qkv(self.norm(x)).unflatten(-1, (3, self.num_heads, -1)).unbind(2)
        return query, key, value

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, rate: float) -> Tensor:
        """The output of the last positions, as many as `query` has, from the keys and values of all."""
        asked, known = query.shape[1], key.shape[1]
        scale = query.shape[-1] ** -0.5
        scores = (at_least_float32(query[:, :, None]) * at_least_float32(key[:, None])).sum(-1) * scale
        if asked > 1:
            future = torch.ones(asked, known, dtype=torch.bool, device=query.device).triu(1 + known - asked)
            scores = scores.masked_fill(future[:, :, None], -torch.inf)
        weights = drop(scores.softmax(2), keep, rate).to(value.dtype)
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

    def extend(
        self,
        x: Float[Tensor, "B T W"],
        activated: Float[Tensor, "B T W"],
        past: Memory | None,
        num_outputs: int,
    ) -> tuple[Float[Tensor, "B T_out W"], Memory]:
        """The last `num_outputs` of positions that follow those in `past`, without dropout, and what to remember.

        `activated` is the SiLU of the condition. All positions are read; only what the outputs need is computed.
        """
        read, rest = 2 * self.width, slice(2 * self.width, None)
        weight, bias = self.modulation.weight, self.modulation.bias
        shift_a, scale_a = F.linear(activated, weight[:read], bias[:read]).chunk(2, dim=-1)
        modulation = F.linear(activated[:, -num_outputs:], weight[rest], bias[rest])
        gate_a, shift_m, scale_m, gate_m = modulation.chunk(4, dim=-1)
        attended, memory = self.attention.extend(self._modulate(x, shift_a, scale_a), past, num_outputs)
        x = x[:, -num_outputs:] + gate_a * attended
        return x + gate_m * self.mlp(self._modulate(x, shift_m, scale_m), None, 0.0), memory

    def _modulate(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        return F.layer_norm(x, (self.width,), eps=MODULATED_NORM_EPS) * (1 + scale) + shift
