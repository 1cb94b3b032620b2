"""The rollout of a few hundred candidates: two kernels per block, one before the blocks and one after them."""

import torch

from alewm.model.few_rows.halves import Reader, Stream, attention_half, begin, encode_actions, mlp_half, project
from alewm.model.fused.widths import two_parts
from alewm.model.imagination import LONGEST_FAST_CONTEXT
from alewm.model.prepared import PreparedWeights
from alewm.shapes import Float, Tensor

MOST_ROWS = 16384
"""Candidates that the counters of arrived programs and offsets of 32 bits suffice for."""

_FEWEST_ROWS_OF_A_PROGRAM = 16


def why_not_few_rows(weights: PreparedWeights) -> str | None:
    """The reason the kernels cannot compute with these weights, or None."""
    width, block = weights.width, weights.blocks[0]
    inner = len(block.output.weight)
    if min(two_parts(width)) < 16 or width > 256:
        return f"{width} is not the sum of two powers of two from 16 to 128"
    head = inner // weights.num_heads
    if head < 16 or head & (head - 1):
        return f"heads of {head} are not powers of two of at least 16"
    for hidden in (len(block.narrow.weight), len(weights.project_narrow.weight)):
        if hidden % 32:
            return f"hidden widths of {hidden} are not multiples of 32"
    return None


class FewRowsRollout:
    """Kernels that begin and end where the whole GPU has to meet.

    One rollout at a time: its kernels count their programs in one place.
    """

    def __init__(self, weights: PreparedWeights) -> None:
        self._weights = weights
        most_groups = LONGEST_FAST_CONTEXT * MOST_ROWS // _FEWEST_ROWS_OF_A_PROGRAM
        self._arrived = torch.zeros(most_groups, dtype=torch.int32, device=weights.position.device)

    def imagine_prefix(
        self, z_first: Float[Tensor, "N k"], actions: Float[Tensor, "N H A"], last_width: int, context: int
    ) -> list[Float[Tensor, "N _"]]:
        """The H latents that follow `z_first`, as `WorldModel.imagine_prefix` gives them, up to rounding."""
        weights, capacity, horizon = self._weights, z_first.shape[1], actions.shape[1]
        modulation = self._modulations(actions)
        embedded, latents = [self._embed(z_first)], list[Tensor]()
        memory: list[list[Tensor]] = [[] for _ in weights.blocks]
        for t in range(horizon):
            if t < context:
                seen, place = slice(t, t + 1), slice(t, t + 1)
            else:
                seen, place = slice(t + 1 - context, t + 1), slice(0, context)
                memory = [[] for _ in weights.blocks]
            reader = self._attention_reader(modulation[:, seen], 0)
            stream = begin(embedded[seen], weights.position[place], reader, weights.dtype)
            hidden = self._last_position(stream, modulation[:, seen], memory)
            width = last_width if t == horizon - 1 else capacity
            latents.append(project(hidden, weights.project_widen, weights.project_narrow, width, self._arrived))
            if t < horizon - 1:
                embedded.append(self._embed(latents[-1]))
        return latents

    def _last_position(
        self, stream: Stream, modulation: Float[Tensor, "N T wide"], memory: list[list[Tensor]]
    ) -> Float[Tensor, "N W"]:
        """The last position after all blocks, normalised; `memory` gains keys and values of each block."""
        weights = self._weights
        last = len(weights.blocks) - 1
        for i, block in enumerate(weights.blocks):
            if i == last:
                modulation = modulation[:, -1:]
            _, _, gate, shift, scale, gate_of_mlp = weights.modulation_of(modulation, i)
            reader = Reader(block.norm_mlp, shift, scale)
            stream, known = attention_half(
                stream, block.qkv, block.output, weights.num_heads, memory[i], gate, reader, self._arrived
            )
            if known is not None:
                memory[i].append(known)
            reader = Reader(weights.norm) if i == last else self._attention_reader(modulation, i + 1)
            stream = mlp_half(stream, block.widen, block.narrow, gate_of_mlp, reader, self._arrived)
        return stream.read[:, 0]

    def _attention_reader(self, modulation: Float[Tensor, "N T wide"], block: int) -> Reader:
        shift, scale, *_ = self._weights.modulation_of(modulation, block)
        return Reader(self._weights.blocks[block].norm_attention, shift, scale)

    def _modulations(self, actions: Float[Tensor, "N H A"]) -> Float[Tensor, "N H wide"]:
        """For every action block, shift, scale and gate of attention and MLP in all blocks."""
        weights = self._weights
        encoded = encode_actions(actions.flatten(0, 1), weights.action_widen, weights.action_narrow)
        modulation = torch.addmm(weights.modulation.bias, encoded, weights.modulation.weight)
        return modulation.view(*actions.shape[:2], -1)

    def _embed(self, z: Float[Tensor, "N k"]) -> Float[Tensor, "N _"]:
        return z if self._weights.input_map is None else self._weights.mapped_in(z)
