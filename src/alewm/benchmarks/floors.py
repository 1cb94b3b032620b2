"""What success is worth without a model: recorded actions repeated, random ones and none, on the standard pairs.

Episodes are simulated for the occasion and nothing is drawn, so that tasks with slow pictures can be measured anywhere.
Pairs are those that a file of the same seed would have, one per episode.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch

from alewm.benchmarks.timing import print_line
from alewm.data.pairs import GOAL_OFFSET, start_of_pair
from alewm.envs.registration import Task, get_task
from alewm.errors import InputError
from alewm.evaluation.closed_loop import GoalPairs, run_closed_loop
from alewm.evaluation.floors import DoNothing, UniformRandom, Unseen
from alewm.evaluation.statistics import Proportion
from alewm.shapes import Bool, Float, Tensor, UInt8


class Replay:
    """The actions that were recorded from each start to its goal."""

    def __init__(self, actions: Float[Tensor, "B steps action"]) -> None:
        self.actions = actions

    def begin(self, first: UInt8[Tensor, "B Y X 3"], goal: UInt8[Tensor, "B Y X 3"], episodes: Sequence[int]) -> None:
        """Nothing to prepare."""

    def next_actions(
        self, frames: UInt8[Tensor, "B Y X 3"], active: Bool[Tensor, "B"]
    ) -> Float[Tensor, "B steps action"]:
        """All of them."""
        return self.actions


def bench_floors(*, task_name: str, behaviour: str | None, episodes: int, seed: int, budget: int) -> None:
    """Prints success of each policy over all pairs and over those not solved at the start, and the line of JSON."""
    task = get_task(task_name)
    if episodes < 1:
        raise InputError(f"--episodes must be at least 1, got {episodes}.")
    began = time.perf_counter()
    pairs, recorded = _standard_pairs(task, behaviour, episodes, seed)
    simulated = time.perf_counter() - began
    envs = Unseen(task.make_vector_env(len(pairs)))
    uniform = UniformRandom(task.action_dim, budget, seed)
    outcomes = {
        "recorded actions": run_closed_loop(envs, pairs, Replay(recorded), budget=GOAL_OFFSET),
        "uniform random": run_closed_loop(envs, pairs, uniform, budget=budget),
        "do nothing": run_closed_loop(envs, pairs, DoNothing(task.action_dim, budget), budget=budget),
    }
    presolved = outcomes["do nothing"].presolved
    share = Proportion.of(presolved.tolist())
    print(f"{task_name}, {len(pairs):,} pairs {GOAL_OFFSET} steps apart, budget {budget}")
    print(f"solved at the start: {_described(share)}")
    print(f"{'':<18}{'all pairs':>26}{'not solved at the start':>28}")
    line: dict[str, float | None] = {}
    for name, outcome in outcomes.items():
        over_all = Proportion.of(outcome.success.tolist())
        over_others = Proportion.of(outcome.success[~presolved].tolist())
        print(f"{name:<18}{_described(over_all):>26}{_described(over_others):>28}")
        key = name.replace(" ", "_")
        line |= {key: over_all.rate, f"{key}_not_presolved": over_others.rate}
    print_line(
        "floors",
        task=task_name,
        behaviour=behaviour or task.default_behaviour,
        pairs=len(pairs),
        budget=budget,
        seed=seed,
        presolved=share.rate,
        seconds_simulating=simulated,
        **line,
    )


def _standard_pairs(
    task: Task, behaviour: str | None, episodes: int, seed: int
) -> tuple[GoalPairs, Float[Tensor, "B steps action"]]:
    """One pair of each episode that is long enough, and the actions between."""
    source = task.collect_with(behaviour or task.default_behaviour)
    kept, actions = [], []
    columns: dict[str, list[np.ndarray]] = {name: [] for name in task.state_columns}
    for index, episode in enumerate(source(seed, range(episodes), draws=False)):
        num_rows = len(episode["action"])
        if num_rows <= GOAL_OFFSET:
            continue
        start = start_of_pair(index, num_rows)
        kept.append((index, start))
        actions.append(episode["action"][start : start + GOAL_OFFSET])
        for name, values in columns.items():
            values.append(episode[name][[start, start + GOAL_OFFSET]])
    rows = {name: torch.as_tensor(np.stack(values)) for name, values in columns.items()}
    pairs = GoalPairs(
        tuple(index for index, _ in kept),
        tuple(start for _, start in kept),
        tuple(start + GOAL_OFFSET for _, start in kept),
        {name: values[:, 0] for name, values in rows.items()},
        {name: values[:, 1] for name, values in rows.items()},
    )
    return pairs, torch.as_tensor(np.stack(actions))


def _described(share: Proportion) -> str:
    if share.rate is None:
        return "no pairs"
    low, high = share.interval
    return f"{100 * share.rate:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
