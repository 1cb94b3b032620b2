"""Receding horizon: plan, execute some blocks, look, plan again; for many episodes side by side, or for one.

`RecedingHorizon` is the loop. `Policy` is the same loop for one episode that is seen frame by frame, as a robot is.

Each plan sees only the current frame. What the episode keeps between plans: its goal latent, its capacity (chosen
once, from the first and the goal frame), and whatever was planned beyond the executed blocks, where the next search
starts. With the rule `modal-every-plan` the capacity is chosen anew at each plan. With the paper's setting all planned
blocks are executed, and the next search starts from zero.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from alewm.errors import InputError
from alewm.planning.planner import Images, Numbers, Planner
from alewm.shapes import Bool, Float, Tensor, UInt8

Limit = int | float | Numbers
"""One number for all dimensions of an action, or one per dimension."""


class RecedingHorizon:
    """A policy that replans whenever its executed blocks are used up."""

    def __init__(self, planner: Planner, on_search: Callable[[int], None] | None = None) -> None:
        """`on_search` is called after each search for a group of episodes, with their number: for a progress bar."""
        self.planner, self.on_search = planner, on_search
        self.q: Float[Tensor, "B C"] = torch.empty(0, len(planner.support))
        """q(k | first, goal) of each episode."""
        self.latest_q: Float[Tensor, "B C"] = self.q
        """The q of each episode's latest choice; another than `q` only where the rule decides at every plan."""
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
        self.latest_q = self.q.clone()
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
            len(frames), executed * self.planner.frame_skip, len(self.planner.action_mean), device=self.planner.device
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
        self.latest_q[here] = q
        episodes = [self._episodes[row] for row in rows]
        for row, tried in zip(
            rows, planner.rule.choices(q, planner.support, planner.config.seed, episodes), strict=True
        ):
            self._choices[row] = tried


class Decision(NamedTuple):
    """What a policy does now, and the plan behind it."""

    action: Float[np.ndarray, " action"]
    """The action to execute, in the environment's units and within its limits."""
    cost: float
    """The goal cost that the plan is predicted to end with."""
    capacity: int
    """The capacity it was planned with."""
    q: dict[int, float]
    """The selector's probability of each capacity."""
    is_new_plan: bool
    """Whether the frame was looked at; otherwise the action is a later one of the latest plan."""


class Policy:
    """Acts in one episode, frame by frame, towards the image of a goal.

    ```python
    policy = alewm.load("pretrained/two-room-tiny").policy(goal_image)
    while not done:
        frame, done = step(policy.act(frame).action)
    ```

    A plan is made from the first frame, and again whenever its executed blocks are used up; it starts from what is left
    of the plan before. Frames in between are not looked at.
    """

    def __init__(
        self, planner: Planner, goal: Images | None = None, *, action_limits: tuple[Limit, Limit] | None = None
    ) -> None:
        """`action_limits` are the lowest and the highest action; None leaves actions as they were planned."""
        self.planner = planner
        self.action_limits = None if action_limits is None else _checked_limits(planner, action_limits)
        self._loop, self._waiting = RecedingHorizon(planner), list[Tensor]()
        self._goal: Tensor | None = None
        self._has_begun = False
        if goal is not None:
            self.reset(goal)

    def reset(self, goal: Images, episode: int = 0) -> None:
        """Begin a new episode with another goal; `episode` names its stream of noise, as in an evaluation."""
        self._goal, self._episode = self.planner.one_frame(goal, "goal"), episode
        self._has_begun = False
        self._waiting.clear()

    def act(self, frame: Images) -> Decision:
        """The next action, given the present frame, uint8 [Y, X, 3]."""
        if self._goal is None:
            raise InputError("The policy has no goal yet; call reset(goal) first.")
        seen = self.planner.one_frame(frame, "current")
        is_new_plan = not self._waiting
        if is_new_plan:
            if not self._has_begun:
                self._loop.begin(seen[None], self._goal[None], (self._episode,))
                self._has_begun = True
            actions = self._loop.next_actions(seen[None], torch.ones(1, dtype=torch.bool))[0]
            if self.action_limits is not None:
                actions = actions.clamp(*self.action_limits)
            self._waiting.extend(actions.cpu().unbind())
        loop = self._loop
        return Decision(
            self._waiting.pop(0).numpy(),
            loop.predicted_costs[0][-1],
            loop.capacities[0],
            dict(zip(self.planner.support.capacities, loop.latest_q[0].tolist(), strict=True)),
            is_new_plan,
        )

    def __repr__(self) -> str:
        if self._goal is None:
            state = "no goal yet"
        else:
            state = f"plans made: {len(self._loop.predicted_costs[0]) if self._has_begun else 0}"
        return f"Policy({self.planner!r}, {state})"


def _checked_limits(planner: Planner, limits: tuple[Limit, Limit]) -> tuple[Tensor, Tensor]:
    mean = planner.action_mean
    low, high = (torch.as_tensor(limit, dtype=mean.dtype, device=mean.device).expand_as(mean) for limit in limits)
    if not bool((low < high).all()):
        raise InputError(f"Action limits are the lowest and the highest action, got {low.tolist()}, {high.tolist()}.")
    return low, high
