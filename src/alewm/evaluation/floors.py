"""Policies that see nothing: what success is worth without a model, on the same pairs."""

from collections.abc import Sequence

import torch

from alewm.evaluation.closed_loop import GoalEnvs
from alewm.planning.noise import stream
from alewm.shapes import Bool, Float, Tensor, UInt8


class Unseen:
    """A batch of goal environments that draws no frames: each frame is one black pixel."""

    def __init__(self, envs: GoalEnvs) -> None:
        self.reset_to, self.step = envs.reset_to, envs.step
        self.success, self.distance = envs.success, envs.distance

    def render(self) -> UInt8[Tensor, "B 1 1 3"]:
        """A pixel per episode."""
        done = self.success()
        return torch.zeros(len(done), 1, 1, 3, dtype=torch.uint8, device=done.device)

    render_goal = render


class UniformRandom:
    """Independent uniform actions in [-1, 1], the declared range of every task; a stream per (seed, episode)."""

    def __init__(self, action_dim: int, budget: int, seed: int) -> None:
        self.action_dim, self.budget, self.seed = action_dim, budget, seed
        self._actions = torch.empty(0, budget, action_dim)

    def begin(self, first: UInt8[Tensor, "B Y X 3"], goal: UInt8[Tensor, "B Y X 3"], episodes: Sequence[int]) -> None:
        """Draw every action of every episode."""
        shape = (self.budget, self.action_dim)
        drawn = [torch.rand(shape, generator=stream("uniform actions", self.seed, episode)) for episode in episodes]
        self._actions = 2 * torch.stack(drawn) - 1

    def next_actions(
        self, frames: UInt8[Tensor, "B Y X 3"], active: Bool[Tensor, "B"]
    ) -> Float[Tensor, "B steps action"]:
        """All of them: looking again would change nothing."""
        return self._actions


class DoNothing:
    """Zero actions."""

    def __init__(self, action_dim: int, budget: int) -> None:
        self.action_dim, self.budget = action_dim, budget

    def begin(self, first: UInt8[Tensor, "B Y X 3"], goal: UInt8[Tensor, "B Y X 3"], episodes: Sequence[int]) -> None:
        """Nothing to prepare."""

    def next_actions(
        self, frames: UInt8[Tensor, "B Y X 3"], active: Bool[Tensor, "B"]
    ) -> Float[Tensor, "B steps action"]:
        """Zeros for the whole budget."""
        return torch.zeros(len(frames), self.budget, self.action_dim)


class Replay:
    """Recorded actions, one sequence per pair, whatever happens."""

    def __init__(self, actions: Float[Tensor, "B steps action"]) -> None:
        self.actions = actions

    def begin(self, first: UInt8[Tensor, "B Y X 3"], goal: UInt8[Tensor, "B Y X 3"], episodes: Sequence[int]) -> None:
        """Nothing to prepare."""

    def next_actions(
        self, frames: UInt8[Tensor, "B Y X 3"], active: Bool[Tensor, "B"]
    ) -> Float[Tensor, "B steps action"]:
        """All of them."""
        return self.actions
