"""Run a policy from stored starts to stored goals, all episodes in one batch.

`OpenLoop` executes given actions: random ones and none are the floors, success without a model on the same pairs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from alewm.data.splits import EvaluationPair
from alewm.errors import InputError
from alewm.planning.noise import stream
from alewm.shapes import Bool, Float, Int, Tensor, UInt8


@runtime_checkable
class GoalEnvs(Protocol):
    """Interface of a batch of goal environments (`alewm.envs.contract.VectorGoalEnv` is one)."""

    def reset_to(self, start_rows: Mapping[str, Any], goal_rows: Mapping[str, Any]) -> None:
        """Start every episode at its row, with its goal row as the goal."""
        ...

    def render(self) -> Tensor:
        """A uint8 frame [B, Y, X, 3] of every episode."""
        ...

    def render_goal(self) -> Tensor:
        """A uint8 frame [B, Y, X, 3] of every goal."""
        ...

    def step(self, actions: Tensor, active: Tensor | None = None) -> None:
        """Advance every episode by its action [B, action_dim]; those not active [B] are not looked at again."""
        ...

    def success(self) -> Tensor:
        """Whether each episode is at its goal now [B]."""
        ...

    def distance(self) -> Tensor:
        """How far each is from its goal [B]."""
        ...


@runtime_checkable
class BatchPolicy(Protocol):
    """A policy for many episodes at once (`alewm.planning.policy.RecedingHorizon` and `OpenLoop` are)."""

    def begin(self, first: Tensor, goal: Tensor, episodes: Sequence[int]) -> None:
        """Start new episodes from their first and goal frames [B, Y, X, 3]."""
        ...

    def next_actions(self, frames: Tensor, active: Tensor) -> Tensor:
        """Actions [B, steps, action_dim] to execute before looking again; only those of active episodes count."""
        ...


@dataclass(frozen=True)
class GoalPairs:
    """Where each episode starts and what it must reach, as stored with the data."""

    episodes: tuple[int, ...]
    """Data-file episode of each pair; also names its random streams, unless `streams` does."""

    start_steps: tuple[int, ...]
    """Row within the episode where it starts."""

    goal_steps: tuple[int, ...]
    """Row within the episode that is the goal."""

    start_rows: Mapping[str, Any]
    """State columns [B, ...] of the starts."""

    goal_rows: Mapping[str, Any]
    """State columns [B, ...] of the goals."""

    recorded: Float[Tensor, "B steps action"] | None = None
    """What was done between start and goal when they were recorded, where that is known."""

    streams: tuple[int, ...] = ()
    """What names the random streams of each pair where an episode has several; empty where its episode does."""

    families: tuple[int, ...] | None = None
    """The demonstration each episode is a copy of, where episodes are copies."""

    def __post_init__(self) -> None:
        lengths = {
            "start_steps": len(self.start_steps),
            "goal_steps": len(self.goal_steps),
            **{f"start column {name!r}": len(values) for name, values in self.start_rows.items()},
            **{f"goal column {name!r}": len(values) for name, values in self.goal_rows.items()},
            **({} if self.recorded is None else {"recorded": len(self.recorded)}),
            **({"streams": len(self.streams)} if self.streams else {}),
            **({} if self.families is None else {"families": len(self.families)}),
        }
        for name, length in lengths.items():
            if length != len(self.episodes):
                raise InputError(f"There are {len(self.episodes)} pairs, but {name} has {length} entries.")
        if not self.episodes:
            raise InputError("There are no pairs to evaluate; choose at least one episode.")
        if len(set(self.pair_names)) != len(self.episodes):
            raise InputError("The same pair occurs twice; every (episode, start) may be evaluated once.")

    @classmethod
    def gather(
        cls,
        pairs: Sequence[EvaluationPair],
        column: Callable[[str], Any],
        names: Sequence[str],
        actions: Any = None,
        families: Any = None,
    ) -> "GoalPairs":
        """The stored `pairs` with their state columns, as in `GoalPairs.gather(pairs, store.column, names)`.

        With the file's `actions` [N, action], also what was done in each; with the family of each of its episodes [E],
        also which are copies of one demonstration.
        """
        starts, goals = [pair.start_row for pair in pairs], [pair.goal_row for pair in pairs]
        between = [list(range(pair.start_row, pair.goal_row)) for pair in pairs]
        columns = {name: column(name) for name in names}
        return cls(
            tuple(pair.episode for pair in pairs),
            tuple(pair.start_step for pair in pairs),
            tuple(pair.goal_step for pair in pairs),
            {name: torch.as_tensor(values[starts]) for name, values in columns.items()},
            {name: torch.as_tensor(values[goals]) for name, values in columns.items()},
            None if actions is None else torch.as_tensor(actions[between]),
            families=None if families is None else tuple(int(families[pair.episode]) for pair in pairs),
        )

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def pair_names(self) -> list[tuple[int, int]]:
        """What tells the pairs from each other: episode and first row."""
        return list(zip(self.episodes, self.start_steps, strict=True))

    @property
    def stream_names(self) -> tuple[int, ...]:
        """What names the random streams of each pair."""
        return self.streams or self.episodes

    def take(self, indices: Sequence[int]) -> "GoalPairs":
        """The pairs at `indices`, in that order."""
        return GoalPairs(
            tuple(self.episodes[i] for i in indices),
            tuple(self.start_steps[i] for i in indices),
            tuple(self.goal_steps[i] for i in indices),
            {name: torch.as_tensor(values)[list(indices)] for name, values in self.start_rows.items()},
            {name: torch.as_tensor(values)[list(indices)] for name, values in self.goal_rows.items()},
            None if self.recorded is None else self.recorded[list(indices)],
            streams=tuple(self.streams[i] for i in indices) if self.streams else (),
            families=None if self.families is None else tuple(self.families[i] for i in indices),
        )


@dataclass(frozen=True)
class ClosedLoop:
    """Outcomes of all episodes, on the CPU."""

    presolved: Bool[Tensor, "B"]
    """At the goal before the first step."""

    success: Bool[Tensor, "B"]
    """At the goal after some step within the budget."""

    steps: Int[Tensor, "B"]
    """Environment steps taken: up to success, or the budget."""

    distances: Float[Tensor, "B time"]
    """Distance to the goal at the start and after each step; NaN once an episode is over."""

    actions: Float[Tensor, "B budget action"]
    """Executed actions; zero once an episode is over."""


def run_closed_loop(envs: GoalEnvs, pairs: GoalPairs, policy: BatchPolicy, *, budget: int) -> ClosedLoop:
    """The outcome of every episode under `policy` within `budget` environment steps.

    Success is tested after each step, never before the first, and stays: an episode that has once succeeded is over.
    It is neither planned nor measured any more (its environment is left, or receives zero actions where a batch steps
    together).
    """
    if budget < 1:
        raise InputError(f"The budget must be at least one environment step, got {budget}.")
    envs.reset_to(pairs.start_rows, pairs.goal_rows)
    presolved, distance = envs.success(), envs.distance()
    if len(presolved) != len(pairs):
        raise InputError(f"The environment has {len(presolved)} episodes, but there are {len(pairs)} pairs.")
    frames = envs.render()
    policy.begin(frames, envs.render_goal(), pairs.stream_names)
    active = torch.ones_like(presolved)
    steps = torch.zeros_like(presolved, dtype=torch.long)
    distances = [distance]
    executed: list[Tensor] = []
    while len(executed) < budget and active.any():
        if executed:
            frames = envs.render()
        for action in policy.next_actions(frames, active).to(active.device).unbind(1)[: budget - len(executed)]:
            executed.append(torch.where(active[:, None], action, 0))
            envs.step(executed[-1], active)
            steps += active
            distances.append(torch.where(active, envs.distance(), torch.nan))
            active = active & ~envs.success()
            if not active.any():
                break
    missing = budget - len(executed)
    distances += [torch.full_like(distance, torch.nan)] * missing
    executed += [torch.zeros_like(executed[-1])] * missing
    return ClosedLoop(
        presolved.cpu(), ~active.cpu(), steps.cpu(), torch.stack(distances, 1).cpu(), torch.stack(executed, 1).cpu()
    )


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


class OpenLoop:
    """A policy that executes given actions and looks at no frame."""

    def __init__(self, actions: Float[Tensor, "B steps action"]) -> None:
        self.actions = actions

    def begin(self, first: UInt8[Tensor, "B Y X 3"], goal: UInt8[Tensor, "B Y X 3"], episodes: Sequence[int]) -> None:
        """Nothing to prepare."""

    def next_actions(
        self, frames: UInt8[Tensor, "B Y X 3"], active: Bool[Tensor, "B"]
    ) -> Float[Tensor, "B steps action"]:
        """All actions at once."""
        return self.actions


def uniform_actions(pairs: GoalPairs, action_dim: int, budget: int, seed: int) -> Float[Tensor, "B budget action"]:
    """Independent uniform actions in [-1, 1], the declared range of every task; a stream per seed and pair."""
    shape = (budget, action_dim)
    streams = [stream("uniform actions", seed, name) for name in pairs.stream_names]
    return 2 * torch.stack([torch.rand(shape, generator=generator) for generator in streams]) - 1
