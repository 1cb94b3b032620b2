"""The planner without a model: candidates are tried out in the environment itself, and end states are compared.

What it reaches on a task's pairs is what planning with this search, horizon and budget is worth when predictions are
perfect. Where it misses a pair, the search or the horizon is too short, or the distance between states misleads it (a
learned one may mislead less: the bound is one on predictions, not on costs).
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch

from alewm.data.normalize import ActionStatistics
from alewm.envs.contract import VectorGoalEnv
from alewm.evaluation.state_costs import StateCost
from alewm.planning.cem import solve
from alewm.planning.noise import candidate_noise
from alewm.planning.planner import PlanningConfig
from alewm.shapes import Bool, Float, Tensor, UInt8


class TrueSimulator:
    """A policy for one episode that plans as `RecedingHorizon` does, with `env` in place of a world model.

    The same search meets the same noise, in the same normalised units of actions; only the rollout and the cost differ.
    Copies are loaded from the episode's state. An engine that hides some of it (`restores_exactly` is False) therefore
    imagines a first plan exactly, since episodes begin by loading a row too, and later ones nearly so.
    """

    def __init__(
        self,
        env: VectorGoalEnv,
        make_copies: Callable[[int], VectorGoalEnv],
        cost: StateCost,
        statistics: ActionStatistics,
        config: PlanningConfig,
    ) -> None:
        """`make_copies(n)` gives n worlds of the kind `env` is one of; `statistics` are those of training actions."""
        self.env, self.cost, self.statistics, self.config = env, cost, statistics, config
        self._copies = cache(make_copies)
        self.predicted_costs: list[float] = []

    def begin(self, first: UInt8[Tensor, "1 Y X 3"], goal: UInt8[Tensor, "1 Y X 3"], episodes: Sequence[int]) -> None:
        """Start a new episode, whose number names its streams of noise; the frames are not looked at."""
        (self._episode,) = episodes
        self._blocks = torch.zeros(1, self.config.horizon, self.config.frame_skip * self.statistics.action_dim)
        self.predicted_costs = []

    def next_actions(
        self, frames: UInt8[Tensor, "1 Y X 3"], active: Bool[Tensor, "1"]
    ) -> Float[Tensor, "1 steps action"]:
        """The actions to execute before planning again."""
        config, cem = self.config, self.config.cem
        key = (config.seed, self._episode, len(self.predicted_costs))
        size = (cem.num_iterations, cem.num_candidates, *self._blocks.shape[1:])
        found = solve(self._score, candidate_noise([key], *size, device=self._blocks.device), cem, self._blocks)
        self.predicted_costs.append(float(found.cost))
        executed, left = found.mean[:, : config.executed_blocks], found.mean[:, config.executed_blocks :]
        self._blocks = torch.cat([left, torch.zeros_like(executed)], 1)
        return self._actions(executed)

    def _score(self, candidates: Float[Tensor, "1 S H A"]) -> Float[Tensor, "1 S"]:
        """The cost of where each candidate ends."""
        actions = self._actions(candidates[0])
        worlds = self._copies(len(actions))
        worlds.reset_to(_repeated(self.env.state(), len(actions)), _repeated(self.env.goal(), len(actions)))
        for action in actions.unbind(1):
            worlds.step(action)
        return self.cost(worlds)[None].float()

    def _actions(self, blocks: Float[Tensor, "B H A"]) -> Float[Tensor, "B steps action"]:
        return self.statistics.denormalize(blocks.reshape(len(blocks), -1, self.statistics.action_dim))


def _repeated(rows: dict[str, Tensor], times: int) -> dict[str, Tensor]:
    return {name: values.expand(times, *values.shape[1:]) for name, values in rows.items()}
