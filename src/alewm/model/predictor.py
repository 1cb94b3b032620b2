"""The predictor: a short history of latents and actions to the next latents.

Actions condition every block by adaptive layer normalisation (AdaLN).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from alewm.config import Count, Share, check_ranges
from alewm.devices import at_least_float32
from alewm.errors import InputError
from alewm.shapes import Bool, Float, Tensor


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
        embedded: Tensor = self.narrow(F.silu(self.widen(self.compress(actions))))
        return embedded


MODULATED_NORM_EPS = 1e-6


def drop(x: Float[Tensor, "*shape"], keep: Bool[Tensor, "B draws"] | None, rate: float) -> Float[Tensor, "*shape"]:
    """x with the entries outside `keep` zeroed and the others rescaled; x itself where `keep` is None."""
    return x if keep is None else x * keep.reshape(x.shape) * (1 / (1 - rate))


class KeyValueCache(NamedTuple):
    """Cached keys and values of earlier positions."""

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
        """Causal attention over the positions."""
        return self._mix(*self._heads_of(x), keep, rate)

    def extend(
        self, x: Float[Tensor, "B T W"], past: KeyValueCache | None, num_outputs: int
    ) -> tuple[Float[Tensor, "B T_out W"], KeyValueCache]:
        """The last `num_outputs` of these positions after attention to all before them, `past` ones included."""
        query, key, value = self._heads_of(x)
        if past is not None:
            key, value = torch.cat([past.key, key], 1), torch.cat([past.value, value], 1)
        return self._mix(query[:, -num_outputs:], key, value, None, 0.0), KeyValueCache(key, value)

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
        past: KeyValueCache | None,
        num_outputs: int,
    ) -> tuple[Float[Tensor, "B T_out W"], KeyValueCache]:
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
        """Hidden state of each position, from which the next latent is projected; causal.

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


LONGEST_FAST_CONTEXT = 3
"""Positions that the kernels of `alewm.kernels.predictor_blocks` support."""
