"""What success on pairs is worth without a model: recorded actions replayed, random ones, and none at all.

The pairs are those of a file, or of episodes that are simulated for the occasion. Nothing is drawn for these, so that
tasks with slow pictures can be measured anywhere. They are the pairs that a file of the same seed would have, one per
episode.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alewm.data.action_statistics import ActionStatistics
from alewm.data.schema import FAMILY
from alewm.data.splits import (
    GOAL_OFFSET,
    SplitBy,
    find_families,
    load_or_draw_pairs,
    load_or_make_splits,
    start_of_pair,
)
from alewm.data.store import EpisodeStore
from alewm.envs.recording import episode_stream
from alewm.envs.registry import get_task
from alewm.envs.task import Task
from alewm.errors import InputError, unknown_name
from alewm.evaluation.closed_loop import ClosedLoop, GoalPairs, uniform_actions
from alewm.evaluation.statistics import Proportion
from alewm.evaluation.success import BUDGET, without_model
from alewm.progress import Progress
from alewm.shapes import Bool, Tensor
from alewm_lab.benchmarks.timing import print_line


@dataclass(frozen=True)
class StandardPairs:
    """Pairs of one task, with what was recorded between their starts and goals."""

    task: Task
    pairs: GoalPairs
    statistics: ActionStatistics
    """Of the actions a model would be trained on."""
    what: str
    """Where they come from, in words."""
    facts: dict[str, str]
    """The same for the line of JSON."""

    def only(self, episodes: Sequence[int]) -> "StandardPairs":
        """The pairs of these `episodes`."""
        for episode in episodes:
            if episode not in self.pairs.episodes:
                raise unknown_name("episode with a pair", str(episode), list(map(str, self.pairs.episodes)))
        chosen = [index for index, episode in enumerate(self.pairs.episodes) if episode in episodes]
        return replace(self, pairs=self.pairs.take(chosen), what=f"{len(chosen)} of {self.what}")


def pairs_of_file(data: Path, task_name: str | None, num_pairs: int | None, split: SplitBy = "family") -> StandardPairs:
    """The first `num_pairs` test pairs stored beside `data`, or all."""
    with EpisodeStore.open(data) as store:
        task = get_task(task_named_by(store, task_name))
        splits = load_or_make_splits(store, split)
        stored = load_or_draw_pairs(store, splits).test[:num_pairs]
        families = find_families(store)
        of_episode = None if families is None else families.of_episode
        pairs = GoalPairs.gather(stored, store.column, task.state_columns, store.actions, of_episode)
        statistics = ActionStatistics.of_training(store, splits)
    return StandardPairs(task, pairs, statistics, f"{len(pairs)} test pairs of {data}", {"data": str(data)})


def _episodes(task: Task, behaviour: str, seed: int, chosen: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
    """Episodes without frames; Push-T's `weak` behaviour is known here only."""
    if (task.name, behaviour) == ("push-t", "weak"):
        return weak_episodes(seed, chosen)
    return task.collect_with(behaviour)(seed, chosen, draw_every=0)


def simulated_pairs(
    task_name: str, episodes: int, *, behaviour: str | None = None, seed: int = 0, every: int = 1
) -> StandardPairs:
    """One pair of each of `episodes` episodes that is long enough, every n-th; statistics are of their actions."""
    task = get_task(task_name)
    if episodes < 1:
        raise InputError(f"--episodes must be at least 1, got {episodes}.")
    if every < 1:
        raise InputError(f"--every must be at least 1, got {every}.")
    name = behaviour or task.default_behaviour
    kept, between, actions, families = [], [], [], []
    columns: dict[str, list[np.ndarray]] = {column: [] for column in task.state_columns}
    chosen = range(0, episodes * every, every)
    for index, episode in zip(chosen, _episodes(task, name, seed, chosen), strict=True):
        num_rows = len(episode["action"])
        actions.append(episode["action"])
        if num_rows <= GOAL_OFFSET:
            continue
        start = start_of_pair(index, num_rows)
        kept.append((index, start))
        families += [int(episode[FAMILY][0])] if FAMILY in episode else []
        between.append(episode["action"][start : start + GOAL_OFFSET])
        for column, values in columns.items():
            values.append(episode[column][[start, start + GOAL_OFFSET]])
    if not kept:
        raise InputError(f"None of {episodes} episodes has the {GOAL_OFFSET + 1} rows a pair needs; ask for more.")
    rows = {column: torch.as_tensor(np.stack(values)) for column, values in columns.items()}
    pairs = GoalPairs(
        tuple(index for index, _ in kept),
        tuple(start for _, start in kept),
        tuple(start + GOAL_OFFSET for _, start in kept),
        {column: values[:, 0] for column, values in rows.items()},
        {column: values[:, 1] for column, values in rows.items()},
        torch.as_tensor(np.stack(between)),
        families=tuple(families) or None,
    )
    return StandardPairs(
        task,
        pairs,
        ActionStatistics.fit(np.concatenate(actions)),
        f"{len(pairs)} pairs of simulated episodes ({name})",
        {"behaviour": name},
    )


def task_named_by(store: EpisodeStore, task_name: str | None) -> str:
    known = store.attributes.get("task")
    if known is None and task_name is None:
        raise InputError(f"{store.path} does not say which task it is of; add --task, for example --task two-room.")
    if known is not None and task_name not in (None, known):
        raise InputError(f"{store.path} holds episodes of {known!r}, not of {task_name!r}.")
    return str(task_name or known)


_PAIRS_AT_ONCE = 50  # each is a simulator with its memory


def bench_replay(
    bench: str, standard: StandardPairs, seed: int, planned: Bool[Tensor, "B"] | None = None, **facts: Any
) -> None:
    """Prints success over all pairs and over those not solved at the start, and the line of JSON of `bench`.

    Success is that of the recorded actions, of both floors, and of what was `planned`, where that is given.
    """
    task, presolved, outcomes = standard.task, *_outcomes(standard, seed)
    titles = {"replay": "recorded actions, 25 steps", "random": "uniform random, 50 steps", "zero": "nothing, 50 steps"}
    if planned is not None:
        titles["planned"], outcomes["planned"] = "CEM in the simulator, 50 steps", planned
    print(f"{task.name}: {standard.what}, {int(presolved.sum())} solved at the start")
    families = standard.pairs.families or ()
    hard_families = [family for family, is_solved in zip(families, presolved.tolist(), strict=False) if not is_solved]
    if families:
        print(f"intervals are by demonstration: {len(set(families))} of them")
    print(f"{'':<32}{'all pairs':>24}{'not solved at the start':>26}")
    line: dict[str, Any] = {"families": len(set(families))} if families else {}
    line |= {"presolved_share": float(presolved.double().mean())}
    for name, title in titles.items():
        success = outcomes[name]
        every, hard = (
            Proportion.of(success.tolist(), families),
            Proportion.of(success[~presolved].tolist(), hard_families),
        )
        print(f"{title:<32}{_percent(every):>24}{_percent(hard):>26}")
        line |= {
            f"{name}_success_rate": every.rate,
            f"{name}_interval": every.interval,
            f"{name}_success_rate_nontrivial": hard.rate,
            f"{name}_interval_nontrivial": hard.interval,
        }
    print_line(bench, task=task.name, pairs=len(standard.pairs), seed=seed, **standard.facts, **facts, **line)


def _outcomes(standard: StandardPairs, seed: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Which pairs were solved at the start, and which each policy solved."""
    task, pairs = standard.task, standard.pairs
    found: dict[str, list[ClosedLoop]] = {"replay": [], "random": [], "zero": []}
    with Progress("running", len(pairs), "pairs") as bar:
        for first in range(0, len(pairs), _PAIRS_AT_ONCE):
            chosen = range(len(pairs))[first : first + _PAIRS_AT_ONCE]
            envs, some = task.make_vector_env(len(chosen)), pairs.take(chosen)
            assert some.recorded is not None
            actions = {
                "replay": some.recorded,
                "random": uniform_actions(some, task.action_dim, BUDGET, seed),
                "zero": torch.zeros(len(some), BUDGET, task.action_dim),
            }
            for name, each in actions.items():
                found[name].append(without_model(envs, some, each))
            bar.advance(len(chosen))
    presolved = torch.cat([outcome.presolved for outcome in found["zero"]])
    return presolved, {name: torch.cat([part.success for part in parts]) for name, parts in found.items()}


def _percent(share: Proportion) -> str:
    if share.rate is None:
        return "-"
    low, high = (100 * bound for bound in share.interval)
    return f"{100 * share.rate:.1f} % ({low:.1f} to {high:.1f})"


WEAK_STEPS = 100
WEAK_REACH = 100.0
"""Pixels that a commanded point may lie from the pusher, and from the block's origin, on each axis."""


def weak_episodes(seed: int, episode_indices: Iterable[int]) -> Iterator[dict[str, np.ndarray]]:
    """Episodes by the weak policy of the public Push-T collector, each a function of the seed and its number.

    Others report 30 to 40 % success with such data, and about 90 % with the published demonstrations. Every step draws
    a point within 100 pixels of the pusher on each axis, moves it into the square of 100 pixels around the block's
    origin, and commands it, clipped to [-1, 1]. Starts may overlap. (In the public collector an episode ends when it
    meets a random goal, which hardly ever happens.)
    """
    return (_weak_episode(seed, index) for index in episode_indices)


def _weak_episode(seed: int, index: int) -> dict[str, np.ndarray]:
    # Other tasks are replayed without Push-T's optional packages.
    from alewm.envs.push_t.behaviour import record_episode
    from alewm.envs.push_t.env import BLOCK_HIGH, BLOCK_LOW, PUSHER_HIGH, PUSHER_LOW
    from alewm.envs.push_t.physics import ACTION_PIXELS

    generator = episode_stream(seed, index)
    pusher, block = generator.uniform(PUSHER_LOW, PUSHER_HIGH, 2), generator.uniform(BLOCK_LOW, BLOCK_HIGH, 2)
    start = np.array([*pusher, *block, generator.uniform(0, 2 * math.pi), 0.0, 0.0])

    def act(step: int, state: np.ndarray) -> np.ndarray:
        point = state[:2] + generator.uniform(-WEAK_REACH, WEAK_REACH, 2)
        point = point.clip(state[2:4] - WEAK_REACH, state[2:4] + WEAK_REACH)
        return np.asarray(((point - state[:2]) / ACTION_PIXELS).clip(-1, 1))

    return record_episode(start, act, WEAK_STEPS, {})
