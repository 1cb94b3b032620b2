"""Statistics of a data file, beside the figures of the published one (`alewm-lab bench data`)."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from alewm.data.inspection import file_figures
from alewm.data.splits import GOAL_OFFSET, PAIR_SEED
from alewm.data.store import EpisodeStore
from alewm.envs.registry import get_task
from alewm.envs.simulated import SimulatedVectorEnv
from alewm.envs.task import Task
from alewm.progress import Progress
from alewm_lab.benchmarks.published_data import FIGURES, PUBLISHED, Figure
from alewm_lab.benchmarks.replay import task_named_by
from alewm_lab.benchmarks.timing import print_line

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
    # Simulators are slow to build, one per episode, so a small batch is reused.
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


def measure(store: EpisodeStore, task: Task) -> dict[str, Figure]:
    """The figures of `store`: those of every file, the share of solved pairs, and the task's own.

    A file from elsewhere may lack the columns that the others are computed from; then they are left out.
    """
    has_states = set(task.state_columns) <= set(store.column_names)
    figures: dict[str, Figure] = {
        **file_figures(store.actions[store.rows_of(episode)] for episode in range(store.num_episodes))
    }
    if not has_states:
        return figures
    share = presolved_share(store, task)
    if share is not None:
        figures["presolved_share"] = share
    if task.name in FIGURES:
        with suppress(KeyError):
            figures |= FIGURES[task.name](_shown(store))
    return figures


def _shown(store: EpisodeStore) -> Iterator[Mapping[str, np.ndarray]]:
    """The columns of each episode, with a bar."""
    with Progress(f"measuring {store.path}", store.num_episodes, "episodes") as bar:
        for episode in range(store.num_episodes):
            yield store.episode_columns(episode)
            bar.advance()


def published_figures(task: Task) -> Mapping[str, Figure]:
    """What is known of the published file of `task`."""
    return PUBLISHED.get(task.name, {})


def statistics_table(figures: Mapping[str, Figure], task: Task) -> str:
    """The figures as lines, with those of the task's published file beside them where there are any."""
    published = published_figures(task)
    rows = [("", "this file", "published")]
    rows += [
        (name.replace("_", " "), in_words(figures.get(name)), in_words(published.get(name)))
        for name in [*figures, *(name for name in published if name not in figures)]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in rows)


def in_words(figure: Figure | None) -> str:
    """`figure` rounded for display."""
    if figure is None:
        return "-"
    if isinstance(figure, str):
        return figure
    if isinstance(figure, (int, float)):
        return f"{figure:,}" if isinstance(figure, int) else f"{figure:.4g}"
    return ", ".join(f"{value:.3g}" for value in figure)


def bench_data(data: Path, task_name: str | None) -> None:
    """Print the figures of the file `data` beside the published ones, and the line of JSON."""
    with EpisodeStore.open(data) as store:
        task = get_task(task_named_by(store, task_name))
        figures = measure(store, task)
    print(statistics_table(figures, task))
    print_line("data", data=str(data), task=task.name, figures=figures)
