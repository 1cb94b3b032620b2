"""The search on a GPU: rollouts with prepared weights, and one CEM iteration recorded as a CUDA graph.

`FastImagination` prepares once per model: weights in the dtype of the products; batch normalisation folded into the map
before it; the two maps at the entrance of the action encoder joined; the modulations of all blocks as one map, so that
each action block is turned into them once. Sums inside normalisation and attention are float32. GELU is its tanh form,
which matrix products apply as they write. It differs from the exact one by at most 5e-4, less than bfloat16 rounds.

`FusedDistilled` rolls distilled dynamics out by one kernel, in float32: their products are small, and rounding them
buys nothing.

`GraphedSearch` records one iteration and replays it. The noise of all iterations is drawn before, and an index on the
device moves through it. A recording belongs to a number of episodes and a capacity. Groups a little smaller than a
recording use it with idle rows, so that an evaluation records a handful of times. One recording is used at a time, so
all share their memory: 200 episodes with every capacity would otherwise fill a large GPU.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from alewm.errors import InputError
from alewm.kernels.distilled_rollout import PackedDynamics, pack, roll_out, why_no_fused_rollout
from alewm.kernels.predictor_blocks import residual_norm, short_attention
from alewm.model.predictor import LONGEST_FAST_CONTEXT, AdaLNBlock
from alewm.model.world_model import Projector, WorldModel
from alewm.planning.distilled import DistilledDynamics, DistilledModel
from alewm.planning.planner import SearchSettings
from alewm.planning.rollout import PlanningModel, PrefixImagination, compared_width, prefix_distance
from alewm.planning.search import CEMResult, Score, refine
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


class FusedDistilled:
    """Imagines like the distilled model it was prepared from, whose networks' later changes it does not see.

    Networks that the kernel cannot hold, and capacities without one, are left to the model.
    """

    def __init__(self, model: DistilledModel) -> None:
        self.model = model
        networks = (network for network in model.dynamics.values() if isinstance(network, DistilledDynamics))
        self.packed = {network.config.capacity: _pack_if_it_fits(network) for network in networks}

    def imagine_prefix(
        self, z_first: Float[Tensor, "N k"], actions: Float[Tensor, "N H A"], last_width: int, context: int
    ) -> list[Float[Tensor, "N _"]]:
        """The H prefixes that follow `z_first`, as `DistilledModel.imagine_prefix` gives them, up to rounding."""
        packed = self.packed.get(z_first.shape[1])
        if packed is None or last_width != packed.capacity:
            return self.model.imagine_prefix(z_first, actions, last_width, context)
        return list(roll_out(packed, z_first, actions))


def _pack_if_it_fits(network: DistilledDynamics) -> PackedDynamics | None:
    config, device = network.config, network.mean.device
    if why_no_fused_rollout(config.capacity, config.action_dim, config.hidden_dim, device) is not None:
        return None
    layers = network.state_layer, network.action_layer, network.hidden_layer, network.output_layer
    return pack(network.mean, network.std, *layers)


_LARGEST_WASTE = 1.25
"""A recording serves groups down to its size divided by this."""


class _Sizes(NamedTuple):
    """What a recording is made for."""

    settings: SearchSettings
    num_iterations: int
    num_candidates: int
    horizon: int
    block_dim: int


class GraphedSearch:
    """An `InnerLoop` for one model, whose weights it copies: a world model's in `dtype`, distilled ones in float32."""

    def __init__(self, model: WorldModel | DistilledModel, dtype: torch.dtype = torch.bfloat16) -> None:
        fast = FastImagination(model, dtype) if isinstance(model, WorldModel) else FusedDistilled(model)
        self._imagination: PrefixImagination = fast
        self._recordings: dict[_Sizes, dict[int, _Recording]] = {}
        self._memory = _SharedMemory()

    def __call__(
        self,
        model: PlanningModel,
        z_now: Float[Tensor, "B D"],
        z_goal: Float[Tensor, "B D"],
        noise: Float[Tensor, "iterations B S H A"],
        initial_mean: Float[Tensor, "B H A"],
        settings: SearchSettings,
    ) -> CEMResult:
        """The result of the search, per episode; `model` is the one this was made from."""
        if settings.search != "cem":
            raise InputError(f"Only CEM is recorded as a CUDA graph, not {settings.search}; use `plan_group`.")
        num_iterations, B, S, H, A = noise.shape
        sizes = _Sizes(settings, num_iterations, S, H, A)
        known = self._recordings.setdefault(sizes, {})
        fitting = [size for size in known if B <= size <= _LARGEST_WASTE * B]
        if not fitting:
            known[B] = _Recording(self._imagination, self._memory, sizes, z_now, z_goal, noise)
        return known[min(fitting, default=B)].search(z_now, z_goal, noise, initial_mean)


class _SharedMemory:
    """What recordings write into while they are replayed; nothing in it outlasts a search."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self._noise = torch.empty(0)

    def hold(self, noise: Tensor) -> Tensor:
        """A copy of `noise` where copies for other recordings are too; a larger one moves, and leaves them theirs."""
        if noise.numel() > self._noise.numel():
            self._noise = torch.empty_like(noise).view(-1)
        return self._noise[: noise.numel()].view(noise.shape).copy_(noise)


class _Recording:
    """One iteration and the final scoring for a fixed number of episodes."""

    def __init__(
        self,
        imagination: PrefixImagination,
        memory: _SharedMemory,
        sizes: _Sizes,
        z_now: Tensor,
        z_goal: Tensor,
        noise: Tensor,
    ) -> None:
        self.sizes, self.settings = sizes, sizes.settings
        B, device = len(z_now), z_now.device
        shape = (B, sizes.horizon, sizes.block_dim)
        self.z_now = z_now[:, : self.settings.capacity].clone()
        self.z_goal, self.noise = z_goal.clone(), memory.hold(noise)
        self.mean = torch.zeros(shape, device=device)
        self.std = torch.ones(shape, device=device)
        self.elite_costs = torch.zeros(sizes.num_iterations, B, device=device)
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self._score = self._make_score(imagination, z_goal.shape[-1])
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            self._iterate()  # compiles the kernels and lets libraries choose theirs
            self._final_cost()
        torch.cuda.current_stream(device).wait_stream(stream)
        torch.cuda.synchronize(device)
        self.iteration, self.ending = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.iteration, pool=memory.pool):
            self._iterate()
        with torch.cuda.graph(self.ending, pool=memory.pool):
            self.cost = self._final_cost()

    def search(self, z_now: Tensor, z_goal: Tensor, noise: Tensor, initial_mean: Tensor) -> CEMResult:
        """The search for these episodes; rows that nobody asked for hold old noise and are not returned."""
        B = len(z_now)
        self.z_now[:B].copy_(z_now[:, : self.settings.capacity])
        self.z_goal[:B].copy_(z_goal)
        self.noise[:, :B].copy_(noise)
        self.mean[:B].copy_(initial_mean)
        self.std.fill_(self.settings.cem.initial_std)
        self.step.zero_()
        for _ in range(self.sizes.num_iterations):
            self.iteration.replay()
        self.ending.replay()
        found = self.mean, self.std, self.cost, self.elite_costs.mT
        mean, std, cost, elite_costs = (tensor[:B].clone() for tensor in found)
        return CEMResult(mean, std, cost, elite_costs)

    def _iterate(self) -> None:
        noise = self.noise.index_select(0, self.step)[0]
        mean, std, cost = refine(self._score, self.mean, self.std, noise, self.settings.cem.num_elites)
        self.mean.copy_(mean)
        self.std.copy_(std)
        self.elite_costs.index_copy_(0, self.step, cost[None])
        self.step.add_(1)

    def _final_cost(self) -> Float[Tensor, "B"]:
        return self._score(self.mean[:, None])[:, 0]

    def _make_score(self, imagination: PrefixImagination, latent_dim: int) -> Score:
        settings = self.settings
        width = compared_width(settings.goal_cost, settings.capacity, latent_dim)

        def score(candidates: Float[Tensor, "B S H A"]) -> Float[Tensor, "B S"]:
            B, S = candidates.shape[:2]
            first, blocks = self.z_now.repeat_interleave(S, 0), candidates.flatten(0, 1)
            end = imagination.imagine_prefix(first, blocks, width, settings.context)[-1]
            return prefix_distance(end.view(B, S, -1), self.z_goal)

        return score
