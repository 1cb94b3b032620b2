"""The weights of a rollout as a GPU wants them, prepared once per model.

Weights in the dtype of the products; batch normalisation folded into the map before it; the two maps at the entrance of
the action encoder joined; the modulations of all blocks as one map, so that each action block is turned into them once.
"""

from typing import NamedTuple

import torch
from torch import nn

from alewm.errors import InputError
from alewm.model.adaln import AdaLNBlock
from alewm.model.imagination import LONGEST_FAST_CONTEXT
from alewm.model.projector import Projector
from alewm.model.world_model import WorldModel
from alewm.shapes import Float, Tensor


class Map(NamedTuple):
    """x · weight + bias."""

    weight: Float[Tensor, "inputs outputs"]
    bias: Float[Tensor, " outputs"]


class Norm(NamedTuple):
    """Weight and bias of a LayerNorm, float32."""

    weight: Float[Tensor, "W"]
    bias: Float[Tensor, "W"]


class PreparedBlock(NamedTuple):
    """A block of the predictor without its modulation."""

    norm_attention: Norm
    qkv: Float[Tensor, "W qkv"]
    output: Map
    norm_mlp: Norm
    widen: Map
    narrow: Map


class PreparedWeights:
    """What a rollout needs of a world model, whose later changes it does not see."""

    def __init__(self, model: WorldModel, dtype: torch.dtype) -> None:
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

    def modulation_of(self, modulation: Float[Tensor, "N T wide"], block: int) -> tuple[Tensor, ...]:
        """Shift, scale and gate of a block's attention, then of its MLP."""
        return modulation[..., 6 * self.width * block : 6 * self.width * (block + 1)].chunk(6, -1)

    def mapped_in(self, z: Float[Tensor, "N k"]) -> Float[Tensor, "N W"]:
        """Latents narrower than the predictor, mapped to its width."""
        assert self.input_map is not None
        return torch.addmm(self.input_map.bias, z.to(self.dtype), self.input_map.weight[: z.shape[1]]).float()

    def _map(self, linear: nn.Linear) -> Map:
        return self._prepared(linear.weight, linear.bias)

    def _prepared(self, weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"]) -> Map:
        return Map(self._columns(weight), bias.to(self.dtype, copy=True))

    def _columns(self, weight: Float[Tensor, "outputs inputs"]) -> Float[Tensor, "inputs outputs"]:
        return weight.mT.to(self.dtype, copy=True, memory_format=torch.contiguous_format)

    def _stacked(self, maps: list[nn.Linear]) -> Map:
        return self._prepared(torch.cat([m.weight for m in maps]), torch.cat([m.bias for m in maps]))

    def _joined(self, first: nn.Linear, second: nn.Linear) -> Map:
        return self._prepared(second.weight @ first.weight, second.weight @ first.bias + second.bias)

    def _without_norm(self, projector: Projector) -> Map:
        norm = projector.norm
        factor = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        bias = (projector.widen.bias - norm.running_mean) * factor + norm.bias
        return self._prepared(projector.widen.weight * factor[:, None], bias)

    def _block(self, block: AdaLNBlock) -> PreparedBlock:
        attention, feed = block.attention, block.mlp
        return PreparedBlock(
            _norm_of(attention.norm),
            self._columns(attention.qkv.weight),
            self._map(attention.output),
            _norm_of(feed.norm),
            self._map(feed.widen),
            self._map(feed.narrow),
        )


def _norm_of(norm: nn.LayerNorm) -> Norm:
    return Norm(norm.weight.to(torch.float32, copy=True), norm.bias.to(torch.float32, copy=True))
