"""What success is worth without a model, on pairs of episodes that are simulated for the occasion.

Nothing is drawn, so that tasks with slow pictures can be measured anywhere; `alewm.benchmarks.replay` needs a file.
Pairs are those that a file of the same seed would have, one per episode.
"""

import numpy as np
import torch

from alewm.benchmarks.replay import report
from alewm.data.pairs import GOAL_OFFSET, start_of_pair
from alewm.envs.registration import Task, get_task
from alewm.errors import InputError
from alewm.evaluation.closed_loop import GoalPairs
from alewm.shapes import Float, Tensor


def bench_replay_simulated(*, task_name: str, behaviour: str | None, episodes: int, seed: int) -> None:
    """Prints success over all pairs and over those that are not solved at the start."""
    task = get_task(task_name)
    if episodes < 1:
        raise InputError(f"--episodes must be at least 1, got {episodes}.")
    name = behaviour or task.default_behaviour
    pairs, actions = _standard_pairs(task, name, episodes, seed)
    what = f"{len(pairs)} pairs of simulated episodes ({name})"
    report("replay-simulated", task, pairs, actions, seed, what, behaviour=name)


def _standard_pairs(
    task: Task, behaviour: str, episodes: int, seed: int
) -> tuple[GoalPairs, Float[Tensor, "B steps action"]]:
    """One pair of each episode that is long enough, and the actions between."""
    source = task.collect_with(behaviour)
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
