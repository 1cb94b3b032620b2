"""How many pairs of recorded rows count as success before anything is done."""

import numpy as np

from alewm.data.pairs import GOAL_OFFSET, PAIR_SEED
from alewm.data.store import EpisodeStore
from alewm.envs.simulated import SimulatedVectorEnv
from alewm.envs.task import Task

MOST_PAIRS = 20_000
"""Pairs looked at: beyond them the share changes in its third digit, and loading a physics engine takes a while."""

_STATES_AT_ONCE = 1024


def presolved_share(
    store: EpisodeStore, task: Task, *, goal_offset: int = GOAL_OFFSET, most_pairs: int = MOST_PAIRS
) -> float | None:
    """The share of pairs (t, t + `goal_offset`) whose start is at its goal; None where no episode is long enough.

    All pairs of the file, or `most_pairs` drawn from them, by the environment's own rule; nothing is drawn on screen.
    """
    starts = _starts(store, goal_offset)
    if len(starts) == 0:
        return None
    if len(starts) > most_pairs:
        starts = np.sort(np.random.default_rng(PAIR_SEED).choice(starts, most_pairs, replace=False))
    columns = {name: store.column(name) for name in task.state_columns}
    # A simulator holds one world per episode and is dear to build; its worlds are loaded one after the other anyway.
    at_once = 1 if issubclass(task.vector_env_class, SimulatedVectorEnv) else min(_STATES_AT_ONCE, len(starts))
    envs = task.make_vector_env(at_once)
    num_solved = 0
    for first in range(0, len(starts), at_once):
        rows = np.resize(starts[first : first + at_once], at_once)  # the last batch is filled up by repeating
        envs.reset_to(
            {name: values[rows] for name, values in columns.items()},
            {name: values[rows + goal_offset] for name, values in columns.items()},
        )
        num_solved += int(envs.success()[: len(starts) - first].sum())
    return num_solved / len(starts)


def _starts(store: EpisodeStore, goal_offset: int) -> np.ndarray:
    counts = np.maximum(0, store.lengths - goal_offset)
    return np.concatenate([np.arange(o, o + n) for o, n in zip(store.offsets, counts, strict=True)])
