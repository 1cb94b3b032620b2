"""What success on a data file's pairs is worth: recorded, uniform-random and no actions, without any model."""

from pathlib import Path

import numpy as np
import torch

from alewm.benchmarks.timing import print_line
from alewm.data.pairs import GOAL_OFFSET, draw_pairs
from alewm.data.store import EpisodeStore
from alewm.envs.registration import get_task
from alewm.errors import InputError
from alewm.evaluation.closed_loop import GoalPairs, Policy, run_closed_loop
from alewm.evaluation.floors import DoNothing, RecordedActions, UniformRandom
from alewm.evaluation.statistics import Proportion


def bench_floors(*, data: Path, task_name: str | None, pairs: int, budget: int, seed: int) -> None:
    """Prints the success of each on the same pairs, one per episode, drawn as an evaluation draws them."""
    if pairs < 1:
        raise InputError(f"--pairs must be at least 1, got {pairs}.")
    with EpisodeStore.open(data) as store:
        task = get_task(task_name or str(store.attributes.get("task", "")))
        long_enough = np.flatnonzero(store.lengths > GOAL_OFFSET)
        if len(long_enough) == 0:
            raise InputError(f"{data} has no episode of more than {GOAL_OFFSET} rows.")
        chosen = long_enough[np.linspace(0, len(long_enough) - 1, min(pairs, len(long_enough))).astype(int)]
        drawn = draw_pairs(store, chosen.tolist())
        gathered = GoalPairs.gather(drawn, store.column, task.state_columns)
        actions = np.stack([store.actions[pair.start_row : pair.goal_row] for pair in drawn])
    envs = task.make_vector_env(len(gathered))
    policies: dict[str, tuple[Policy, int]] = {
        "recorded actions": (RecordedActions(torch.from_numpy(actions)), GOAL_OFFSET),
        "uniform-random actions": (UniformRandom(task.action_dim, budget, seed), budget),
        "no actions": (DoNothing(task.action_dim, budget), budget),
    }
    outcomes = {
        name: run_closed_loop(envs, gathered, policy, budget=steps) for name, (policy, steps) in policies.items()
    }
    presolved = outcomes["no actions"].presolved
    shares = {"solved at the start": Proportion.of(presolved.tolist())}
    shares |= {name: Proportion.of(outcome.success.tolist()) for name, outcome in outcomes.items()}
    print(f"{task.name}, {len(gathered)} pairs {GOAL_OFFSET} steps apart from {data}, budget {budget}")
    for name, share in shares.items():
        low, high = share.interval
        rate, bounds = 100 * (share.rate or 0), f"[{100 * low:.1f}, {100 * high:.1f}]"
        print(f"{name:<24}{share.successes:>6} of {share.trials}{rate:>8.1f} %  {bounds}")
    named = {f"{name.replace(' ', '_').replace('-', '_')}_success": share.rate for name, share in shares.items()}
    print_line("floors", task=task.name, pairs=len(gathered), budget=budget, **named)
