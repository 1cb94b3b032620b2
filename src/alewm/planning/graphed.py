"""The search of `plan_group` on a GPU: a prepared rollout, and one iteration of CEM recorded as a CUDA graph.

Only one iteration is recorded and replayed as often as the search is long; the noise of all iterations is drawn before,
and an index on the device moves through it. A recording belongs to a number of episodes and a capacity. Groups a little
smaller than a recording use it with idle rows, so that an evaluation records a handful of times. One recording is used
at a time, so all of a search share their memory: 200 episodes with every capacity would otherwise fill a large GPU.
"""

from typing import NamedTuple

import torch

from alewm.model.fast_imagination import FastImagination
from alewm.model.world_model import WorldModel
from alewm.planning.cem import CEMResult, Score, refine
from alewm.planning.distilled import DistilledModel
from alewm.planning.inner_loop import SearchSettings
from alewm.planning.model_protocol import PlanningModel, PrefixImagination
from alewm.planning.objective import compared_width, prefix_distance
from alewm.shapes import Float, Tensor

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
    """An `InnerLoop` for one model: a world model, whose weights it copies in `dtype`, or one with distilled dynamics.

    Distilled dynamics are recorded as they are, in float32: their products are small, and rounding them buys nothing.
    """

    def __init__(self, model: WorldModel | DistilledModel, dtype: torch.dtype = torch.bfloat16) -> None:
        self._imagination: PrefixImagination = FastImagination(model, dtype) if isinstance(model, WorldModel) else model
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
