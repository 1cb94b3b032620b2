"""Receding horizon: plan, execute some blocks, look, plan again; for many episodes side by side.

Each plan sees only the current frame. What the episode keeps between plans: its goal latent, its capacity (chosen
once, from the first and the goal frame), and whatever was planned beyond the executed blocks, where the next search
starts. With the rule `modal-every-plan` the capacity is chosen anew at each plan. With the paper's setting all planned
blocks are executed, and the next search starts from zero.
"""

from collections.abc import Callable, Sequence

import torch

from alewm.planning.planner import Planner
from alewm.shapes import Bool, Float, Tensor, UInt8


class RecedingHorizon:
    """A policy that replans whenever its executed blocks are used up."""

    def __init__(self, planner: Planner, on_search: Callable[[int], None] | None = None) -> None:
        """`on_search` is called after each search for a group of episodes, with their number: for a progress bar."""
        self.planner, self.on_search = planner, on_search
        self.q: Float[Tensor, "B C"] = torch.empty(0, len(planner.support))
        self.predicted_costs: list[list[float]] = []
        self._choices: list[tuple[int, ...]] = []

    @property
    def capacities(self) -> tuple[int, ...]:
        """The capacity each episode is planned with; known after its first plan."""
        return tuple(tried[0] for tried in self._choices)

    def begin(self, first: UInt8[Tensor, "B Y X 3"], goal: UInt8[Tensor, "B Y X 3"], episodes: Sequence[int]) -> None:
        """Start new episodes; `episodes` name their streams of noise."""
        config = self.planner.config
        features, latents = self.planner.encode(torch.stack([first, goal], 1))
        self.q = self.planner.capacity_distribution(features)
        self._choices = self.planner.rule.choices(self.q, self.planner.support, config.seed, episodes)
        self._episodes = tuple(episodes)
        self._z_now: Tensor | None = latents[:, 0]
        self._z_goal, self._goal_features = latents[:, 1], features[:, 1]
        self._blocks = torch.zeros(len(first), config.horizon, self.planner.block_dim, device=self.planner.device)
        self._plan_index = 0
        self.predicted_costs = [[] for _ in episodes]

    def next_actions(
        self, frames: UInt8[Tensor, "B Y X 3"], active: Bool[Tensor, "B"]
    ) -> Float[Tensor, "B steps action"]:
        """The actions to execute before the next look; zeros for episodes that are no longer active.

        The first call after `begin` plans from the first frames, which are already encoded.
        """
        rows = active.nonzero().flatten().tolist()
        here = torch.tensor(rows, dtype=torch.long, device=self.planner.device)
        z_now = self._z_now[here] if self._z_now is not None else self._look(frames, rows)
        config, self._z_now = self.planner.config, None
        plans = self.planner.plan(
            z_now,
            self._z_goal[here],
            [self._choices[row] for row in rows],
            [(config.seed, self._episodes[row], self._plan_index) for row in rows],
            self._blocks[here],
            self.on_search,
        )
        executed = config.executed_blocks
        actions = torch.zeros(
            len(frames), executed * config.frame_skip, len(self.planner.action_mean), device=self.planner.device
        )
        actions[here] = self.planner.to_actions(plans.blocks[:, :executed])
        self._blocks[here] = torch.cat([plans.blocks[:, executed:], torch.zeros_like(plans.blocks[:, :executed])], 1)
        for row, capacity, cost in zip(rows, plans.capacities, plans.costs.tolist(), strict=True):
            self._choices[row] = (capacity,)
            self.predicted_costs[row].append(cost)
        self._plan_index += 1
        return actions

    def _look(self, frames: Tensor, rows: list[int]) -> Tensor:
        seen = frames[torch.tensor(rows, device=frames.device)]
        features, latents = self.planner.encode(seen[:, None])
        if self.planner.rule.decides_every_plan:
            self._decide_again(features[:, 0], rows)
        return latents[:, 0]

    def _decide_again(self, features: Tensor, rows: list[int]) -> None:
        """Capacities for the next plan of `rows`, from what is seen now and the goal."""
        planner, here = self.planner, torch.tensor(rows, dtype=torch.long, device=self.planner.device)
        q = planner.capacity_distribution(torch.stack([features, self._goal_features[here]], 1))
        episodes = [self._episodes[row] for row in rows]
        for row, tried in zip(
            rows, planner.rule.choices(q, planner.support, planner.config.seed, episodes), strict=True
        ):
            self._choices[row] = tried
