"""The rollout of `imagination.imagine` for a GPU: prepared weights, few kernels, nothing that waits for the processor.

For many rows, products are the library's, and sums inside normalisation and attention are float32. GELU is the one that
those products apply as they write (its tanh form): it differs from the exact one by at most 5e-4, less than rounding to
eight bits does. For few rows, `few_rows` has kernels of its own.
"""

import torch
import torch.nn.functional as F

from alewm.model.few_rows.rollout import MOST_ROWS, FewRowsRollout, why_not_few_rows
from alewm.model.prepared import Map, PreparedWeights
from alewm.model.rollout_kernels import residual_norm, short_attention
from alewm.model.world_model import WorldModel
from alewm.shapes import Float, Tensor

FEW_ROWS = 1024
"""Candidates, of all episodes together, up to which a rollout takes the kernels of `few_rows`."""


class FastImagination:
    """Imagines like the world model it was prepared from, whose later changes it does not see."""

    def __init__(self, model: WorldModel, dtype: torch.dtype = torch.bfloat16, few_rows: int = FEW_ROWS) -> None:
        weights = PreparedWeights(model, dtype)
        self._many = ManyRowsRollout(weights)
        self._few_rows = min(few_rows, MOST_ROWS)
        obstacle = why_not_few_rows(weights) if few_rows > 0 else "kernels for few rows were not asked for"
        self._few = FewRowsRollout(weights) if obstacle is None else None
        self.description = (
            f"kernels for few rows up to {self._few_rows} candidates at once, library products beyond"
            if obstacle is None
            else f"library products, since {obstacle}"
        )

    def rollout_for(self, num_rows: int) -> "FewRowsRollout | ManyRowsRollout":
        """The rollout for so many candidates at once; the one place where that is decided."""
        return self._few if self._few is not None and num_rows <= self._few_rows else self._many

    def imagine_prefix(
        self, z_first: Float[Tensor, "N k"], actions: Float[Tensor, "N H A"], last_width: int, context: int
    ) -> list[Float[Tensor, "N _"]]:
        """The H latents that follow `z_first`, as `WorldModel.imagine_prefix` gives them, up to rounding."""
        return self.rollout_for(len(z_first)).imagine_prefix(z_first, actions, last_width, context)


class ManyRowsRollout:
    """Library products with two kernels of ours between them."""

    def __init__(self, weights: PreparedWeights) -> None:
        self._weights = weights

    def imagine_prefix(
        self, z_first: Float[Tensor, "N k"], actions: Float[Tensor, "N H A"], last_width: int, context: int
    ) -> list[Float[Tensor, "N _"]]:
        """The H latents that follow `z_first`."""
        N, capacity = z_first.shape
        position = self._weights.position
        horizon = actions.shape[1]
        modulation = self._modulations(actions)
        embedded = [self._embed(z_first)]
        latents: list[Tensor] = []
        history: list[list[Tensor]] = [[] for _ in self._weights.blocks]
        for t in range(horizon):
            seen = slice(t, t + 1) if t < context else slice(t + 1 - context, t + 1)
            if t < context:
                x = embedded[t] + position[t]
            else:
                x = (torch.stack(embedded[seen], 1) + position[:context]).view(N * context, -1)
                history = [[] for _ in self._weights.blocks]
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
        weights, dtype = self._weights, self._weights.dtype
        (N, T), W = modulation.shape[:2], weights.width
        branch: tuple[Tensor, Tensor] | None = None
        for i, block in enumerate(weights.blocks):
            shift, scale, *_ = weights.modulation_of(modulation, i)
            read = residual_norm(x, *block.norm_attention, dtype, modulation=(shift, scale), branch=branch)
            history[i] += (read @ block.qkv).view(N, T, -1).unbind(1)
            num_asked = 1 if i == len(weights.blocks) - 1 else T
            mixed = short_attention(history[i], weights.num_heads, num_asked=num_asked)
            if num_asked < T:
                x, modulation = x.view(N, T, W)[:, -1].contiguous(), modulation[:, -1:]
            _, _, gate, shift, scale, gate_of_mlp = weights.modulation_of(modulation, i)
            attended = torch.addmm(block.output.bias, mixed, block.output.weight)
            read = residual_norm(x, *block.norm_mlp, dtype, modulation=(shift, scale), branch=(gate, attended))
            branch = (gate_of_mlp, _mlp(read, block.widen, block.narrow))
        return residual_norm(x, *weights.norm, dtype, branch=branch)

    def _modulations(self, actions: Float[Tensor, "N H A"]) -> Float[Tensor, "N H wide"]:
        """For every action block, shift, scale and gate of attention and MLP in all blocks."""
        weights = self._weights
        rows = actions.to(weights.dtype).flatten(0, 1)
        widened = F.silu(torch.addmm(weights.action_widen.bias, rows, weights.action_widen.weight))
        embedded = F.silu(torch.addmm(weights.action_narrow.bias, widened, weights.action_narrow.weight))
        modulation = torch.addmm(weights.modulation.bias, embedded, weights.modulation.weight)
        return modulation.view(*actions.shape[:2], -1)

    def _embed(self, z: Float[Tensor, "N k"]) -> Float[Tensor, "N W"]:
        if self._weights.input_map is None:
            return F.pad(z.float(), (0, self._weights.width - z.shape[1]))
        return self._weights.mapped_in(z)

    def _project(self, hidden: Float[Tensor, "N W"], width: int) -> Float[Tensor, "N {width}"]:
        narrow = self._weights.project_narrow
        return _mlp(hidden, self._weights.project_widen, Map(narrow.weight[:, :width], narrow.bias[:width])).float()


def _mlp(x: Float[Tensor, "rows W"], widen: Map, narrow: Map) -> Float[Tensor, "rows out"]:
    hidden = torch._addmm_activation(widen.bias, x, widen.weight, use_gelu=True)
    return torch.addmm(narrow.bias, hidden, narrow.weight)
