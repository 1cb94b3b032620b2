"""Evaluation pairs: where each held-out episode starts and what it must reach, drawn once per file for every method."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alewm.config import from_dict, to_dict
from alewm.data.sidecar import beside, check_fingerprint, kept_beside, read_sidecar, write_sidecar
from alewm.data.splits import Splits
from alewm.data.store import EpisodeStore
from alewm.errors import InputError

PAIR_SEED = 42
GOAL_OFFSET = 25
"""Environment steps from a start to its goal."""


@dataclass(frozen=True)
class EvaluationPair:
    """A start and a goal in one held-out episode."""

    episode: int
    start_step: int
    """Row of the start within the episode."""

    goal_step: int
    """Row of the goal within the episode."""

    start_row: int
    """Row of the start in the file."""

    goal_row: int
    """Row of the goal in the file."""


@dataclass(frozen=True)
class EvaluationPairs:
    """One pair per held-out episode, in episode order."""

    validation: tuple[EvaluationPair, ...]
    test: tuple[EvaluationPair, ...]
    seed: int = PAIR_SEED
    fingerprint: str = ""
    """Of the data file the rows refer to."""

    def part(self, name: str) -> tuple[EvaluationPair, ...]:
        """The pairs of `validation` or `test`."""
        parts = {"validation": self.validation, "test": self.test}
        if name not in parts:
            raise InputError(f"There are no evaluation pairs for {name!r}; choose validation or test.")
        return parts[name]

    def save(self, path: Path) -> None:
        """Write the pairs to `path`."""
        write_sidecar(path, to_dict(self))

    @classmethod
    def load(cls, path: Path) -> "EvaluationPairs":
        """The pairs in `path`."""
        values = read_sidecar(path, ("validation", "test", "seed", "fingerprint"))
        for part in ("validation", "test"):
            values[part] = tuple(from_dict(EvaluationPair, pair) for pair in values[part])
        return from_dict(cls, values)


def draw_pairs(store: EpisodeStore, episodes: Iterable[int], seed: int = PAIR_SEED) -> tuple[EvaluationPair, ...]:
    """One pair for each of `episodes`, its start uniform over the rows that have a goal `GOAL_OFFSET` steps later.

    Each episode has its own stream, so that its pair does not depend on which others are held out.
    """
    return tuple(_draw_pair(store, episode, seed) for episode in episodes)


def start_of_pair(episode: int, num_rows: int, seed: int = PAIR_SEED) -> int:
    """The row at which the pair of an episode of `num_rows` rows starts."""
    return int(np.random.default_rng([seed, episode]).integers(num_rows - GOAL_OFFSET))


def _draw_pair(store: EpisodeStore, episode: int, seed: int) -> EvaluationPair:
    rows = store.rows_of(episode)
    num_starts = rows.stop - rows.start - GOAL_OFFSET
    if num_starts < 1:
        raise InputError(
            f"Episode {episode} of {store.path} has {rows.stop - rows.start} rows; a start and a goal {GOAL_OFFSET} "
            f"steps later need {GOAL_OFFSET + 1}. Leave it out."
        )
    start = start_of_pair(episode, rows.stop - rows.start, seed)
    goal = start + GOAL_OFFSET
    return EvaluationPair(episode, start, goal, rows.start + start, rows.start + goal)


def load_or_draw_pairs(store: EpisodeStore, splits: Splits, seed: int = PAIR_SEED) -> EvaluationPairs:
    """The pairs stored beside `store`; drawn and stored there if there are none."""
    path = beside(store.path, f"pairs-{splits.variant}" if splits.variant else "pairs")
    if path.exists():
        pairs = EvaluationPairs.load(path)
        check_fingerprint(path, pairs.fingerprint, store.fingerprint, store.path)
        stored = tuple(tuple(pair.episode for pair in part) for part in (pairs.validation, pairs.test))
        if pairs.seed != seed or stored != (splits.validation, splits.test):
            raise InputError(f"{path} belongs to another split or pair seed. Delete it to draw the pairs anew.")
        return pairs
    pairs = EvaluationPairs(
        draw_pairs(store, splits.validation, seed), draw_pairs(store, splits.test, seed), seed, store.fingerprint
    )
    with kept_beside(store.path):
        pairs.save(path)
    return pairs
