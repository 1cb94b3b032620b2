"""The rollout of `imagination.imagine` for a GPU: prepared weights, few kernels, nothing that waits for the processor.

What is prepared once per model: weights in the dtype of the products; batch normalisation folded into the map before
it; the two maps at the entrance of the action encoder joined; the modulations of all blocks as one map, so that each
action block is turned into them once. Sums inside normalisation and attention are float32. GELU is the one that matrix
products apply as they write (its tanh form): it differs from the exact one by at most 5e-4, less than rounding to eight
bits does.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from alewm.errors import InputError
from alewm.model.adaln import AdaLNBlock
from alewm.model.imagination import LONGEST_FAST_CONTEXT
from alewm.model.projector import Projector
from alewm.model.rollout_kernels import residual_norm, short_attention
from alewm.model.world_model import WorldModel
from alewm.shapes import Float, Tensor


class _Map(NamedTuple):
    """x · weight + bias."""

    weight: Float[Tensor, "inputs outputs"]
    bias: Float[Tensor, " outputs"]


class _Norm(NamedTuple):
    weight: Float[Tensor, "W"]
    bias: Float[Tensor, "W"]


class _Block(NamedTuple):
    norm_attention: _Norm
    qkv: Float[Tensor, "W qkv"]
    output: _Map
    norm_mlp: _Norm
    widen: _Map
    narrow: _Map


class FastImagination:
    """Imagines like the world model it was prepared from, whose later changes it does not see."""

    def __init__(self, model: WorldModel, dtype: torch.dtype = torch.bfloat16) -> None:
        predictor = model.predictor
        if predictor.config.context_length > LONGEST_FAST_CONTEXT:
            raise InputError(
                f"The fast rollout reads at most {LONGEST_FAST_CONTEXT} positions, the predictor "
                f"{predictor.config.context_length}."
            )
        self.dtype, self.width, self.num_heads = dtype, predictor.width, predictor.config.num_heads
        with torch.no_grad():
            self.position = predictor.position[0].to(torch.float32, copy=True)
            self.input_map = None if predictor.input_map is None else self._map(predictor.input_map)
            self.blocks = [self._block(block) for block in predictor.blocks if isinstance(block, AdaLNBlock)]
            self.norm = _norm_of(predictor.norm)
            self.modulation = self._stacked([b.modulation for b in predictor.blocks if isinstance(b, AdaLNBlock)])
            self.action_widen = self._joined(model.action_encoder.compress, model.action_encoder.widen)
            self.action_narrow = self._map(model.action_encoder.narrow)
            self.project_widen = self._without_norm(model.prediction_projector)
            self.project_narrow = self._map(model.prediction_projector.narrow)

    def imagine_prefix(
        self, z_first: Float[Tensor, "N k"], actions: Float[Tensor, "N H A"], last_width: int, context: int
    ) -> list[Float[Tensor, "N _"]]:
        """The H latents that follow `z_first`, as `WorldModel.imagine_prefix` gives them, up to rounding."""
        N, capacity = z_first.shape
        horizon = actions.shape[1]
        modulation = self._modulations(actions)
        embedded = [self._embed(z_first)]
        latents: list[Tensor] = []
        history: list[list[Tensor]] = [[] for _ in self.blocks]
        for t in range(horizon):
            seen = slice(t, t + 1) if t < context else slice(t + 1 - context, t + 1)
            if t < context:
                x = embedded[t] + self.position[t]
            else:
                x = (torch.stack(embedded[seen], 1) + self.position[:context]).view(N * context, -1)
                history = [[] for _ in self.blocks]
            hidden = self._last_position(x, modulation[:, seen], history)
            is_last = t == horizon - 1
            latents.append(self._project(hidden, last_width if is_last else capacity))
            if not is_last:
                embedded.append(self._embed(latents[-1]))
        return latents

    def _last_position(
        self, x: Float[Tensor, "rows W"], modulation: Float[Tensor, "N T wide"], history: list[list[Tensor]]
    ) -> Float[Tensor, "N W"]:
        """The last position after all blocks, normalised; `history` gains queries, keys and values of each block."""
        (N, T), W = modulation.shape[:2], self.width
        branch: tuple[Tensor, Tensor] | None = None
        for i, block in enumerate(self.blocks):
            shift, scale, *_ = self._modulation_of(modulation, i)
            read = residual_norm(x, *block.norm_attention, self.dtype, modulation=(shift, scale), branch=branch)
            history[i] += (read @ block.qkv).view(N, T, -1).unbind(1)
            num_asked = 1 if i == len(self.blocks) - 1 else T
            mixed = short_attention(history[i], self.num_heads, num_asked=num_asked)
            if num_asked < T:
                x, modulation = x.view(N, T, W)[:, -1].contiguous(), modulation[:, -1:]
            _, _, gate, shift, scale, gate_of_mlp = self._modulation_of(modulation, i)
            attended = torch.addmm(block.output.bias, mixed, block.output.weight)
            read = residual_norm(x, *block.norm_mlp, self.dtype, modulation=(shift, scale), branch=(gate, attended))
            branch = (gate_of_mlp, _mlp(read, block.widen, block.narrow))
        return residual_norm(x, *self.norm, self.dtype, branch=branch)

    def _modulation_of(self, modulation: Float[Tensor, "N T wide"], block: int) -> tuple[Tensor, ...]:
        """Shift, scale and gate of a block's attention, then of its MLP."""
        return modulation[..., 6 * self.width * block : 6 * self.width * (block + 1)].chunk(6, -1)

    def _modulations(self, actions: Float[Tensor, "N H A"]) -> Float[Tensor, "N H wide"]:
        """For every action block, shift, scale and gate of attention and MLP in all blocks."""
        rows = actions.to(self.dtype).flatten(0, 1)
        widened = F.silu(torch.addmm(self.action_widen.bias, rows, self.action_widen.weight))
        embedded = F.silu(torch.addmm(self.action_narrow.bias, widened, self.action_narrow.weight))
        modulation = torch.addmm(self.modulation.bias, embedded, self.modulation.weight)
        return modulation.view(*actions.shape[:2], -1)

    def _embed(self, z: Float[Tensor, "N k"]) -> Float[Tensor, "N W"]:
        if self.input_map is None:
            return F.pad(z.float(), (0, self.width - z.shape[1]))
        return torch.addmm(self.input_map.bias, z.to(self.dtype), self.input_map.weight[: z.shape[1]]).float()

    def _project(self, hidden: Float[Tensor, "N W"], width: int) -> Float[Tensor, "N {width}"]:
        narrow = self.project_narrow
        return _mlp(hidden, self.project_widen, _Map(narrow.weight[:, :width], narrow.bias[:width])).float()

    def _map(self, linear: nn.Linear) -> _Map:
        return self._prepared(linear.weight, linear.bias)

    def _prepared(self, weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"]) -> _Map:
        return _Map(self._columns(weight), bias.to(self.dtype, copy=True))

    def _columns(self, weight: Float[Tensor, "outputs inputs"]) -> Float[Tensor, "inputs outputs"]:
        return weight.mT.to(self.dtype, copy=True, memory_format=torch.contiguous_format)

    def _stacked(self, maps: list[nn.Linear]) -> _Map:
        return self._prepared(torch.cat([m.weight for m in maps]), torch.cat([m.bias for m in maps]))

    def _joined(self, first: nn.Linear, second: nn.Linear) -> _Map:
        return self._prepared(second.weight @ first.weight, second.weight @ first.bias + second.bias)

    def _without_norm(self, projector: Projector) -> _Map:
        norm = projector.norm
        factor = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        bias = (projector.widen.bias - norm.running_mean) * factor + norm.bias
        return self._prepared(projector.widen.weight * factor[:, None], bias)

    def _block(self, block: AdaLNBlock) -> _Block:
        attention, feed = block.attention, block.mlp
        return _Block(
            _norm_of(attention.norm),
            self._columns(attention.qkv.weight),
            self._map(attention.output),
            _norm_of(feed.norm),
            self._map(feed.widen),
            self._map(feed.narrow),
        )


def _norm_of(norm: nn.LayerNorm) -> _Norm:
    return _Norm(norm.weight.to(torch.float32, copy=True), norm.bias.to(torch.float32, copy=True))


def _mlp(x: Float[Tensor, "rows W"], widen: _Map, narrow: _Map) -> Float[Tensor, "rows out"]:
    hidden = torch._addmm_activation(widen.bias, x, widen.weight, use_gelu=True)
    return torch.addmm(narrow.bias, hidden, narrow.weight)
