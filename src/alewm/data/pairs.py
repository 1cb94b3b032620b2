"""Evaluation pairs: where each held-out episode starts and what it must reach, drawn once per file for every method.

There is one pair per held-out episode; where methods are to be told apart more finely there are several, drawn by
themselves and kept in a file of their own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from alewm.config import ADDED_LATER, to_dict
from alewm.data.sidecar import beside, check_fingerprint, kept_beside, read_config_sidecar, write_sidecar
from alewm.data.splits import Splits
from alewm.data.store import EpisodeStore
from alewm.errors import InputError

PAIR_SEED = 42
SEVERAL_SEED = 43
"""Seed of the pairs where an episode has several, which are drawn independently of the single ones."""
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
    """The pairs of every held-out episode, in the order of episodes and of their starts."""

    validation: tuple[EvaluationPair, ...]
    test: tuple[EvaluationPair, ...]
    seed: int = PAIR_SEED
    fingerprint: str = ""
    """Of the data file the rows refer to."""
    per_episode: int = field(default=1, metadata=ADDED_LATER)
    """Pairs of each episode; one too short for as many different starts has as many as it has."""

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
        return read_config_sidecar(path, cls, ("validation", "test", "seed", "fingerprint"))


def draw_pairs(store: EpisodeStore, episodes: Iterable[int], seed: int = PAIR_SEED) -> tuple[EvaluationPair, ...]:
    """One pair for each of `episodes`, its start uniform over the rows that have a goal `GOAL_OFFSET` steps later.

    Each episode has its own stream, so that its pair does not depend on which others are held out.
    """
    return tuple(_draw_pair(store, episode, seed) for episode in episodes)


def draw_several_pairs(
    store: EpisodeStore, episodes: Iterable[int], per_episode: int, seed: int = SEVERAL_SEED
) -> tuple[EvaluationPair, ...]:
    """`per_episode` pairs for each of `episodes` with different starts, all equally likely; fewer if it has fewer."""
    pairs = []
    for episode in episodes:
        num_starts = _num_starts(store, episode)
        starts = np.random.default_rng([seed, episode]).permutation(num_starts)[:per_episode]
        pairs += [_pair_at(store, episode, int(start)) for start in sorted(starts)]
    return tuple(pairs)


def start_of_pair(episode: int, num_rows: int, seed: int = PAIR_SEED) -> int:
    """The row at which the pair of an episode of `num_rows` rows starts."""
    return int(np.random.default_rng([seed, episode]).integers(num_rows - GOAL_OFFSET))


def _draw_pair(store: EpisodeStore, episode: int, seed: int) -> EvaluationPair:
    num_starts = _num_starts(store, episode)
    return _pair_at(store, episode, start_of_pair(episode, num_starts + GOAL_OFFSET, seed))


def _num_starts(store: EpisodeStore, episode: int) -> int:
    """Rows of an episode that have a goal `GOAL_OFFSET` steps later; one without any is refused."""
    rows = store.rows_of(episode)
    num_starts: int = rows.stop - rows.start - GOAL_OFFSET
    if num_starts < 1:
        raise InputError(
            f"Episode {episode} of {store.path} has {rows.stop - rows.start} rows; a start and a goal {GOAL_OFFSET} "
            f"steps later need {GOAL_OFFSET + 1}. Leave it out."
        )
    return num_starts


def _pair_at(store: EpisodeStore, episode: int, start: int) -> EvaluationPair:
    first, goal = store.rows_of(episode).start, start + GOAL_OFFSET
    return EvaluationPair(episode, start, goal, first + start, first + goal)


def load_or_draw_pairs(
    store: EpisodeStore, splits: Splits, seed: int | None = None, *, per_episode: int = 1
) -> EvaluationPairs:
    """The pairs stored beside `store`; drawn and stored there if there are none.

    With `per_episode` above one they are others, in a file of their own: `two-room.pairs-5.json`. `seed` is by default
    `PAIR_SEED` for single pairs and `SEVERAL_SEED` for several.
    """
    if per_episode < 1:
        raise InputError(f"An episode has at least one pair, asked {per_episode}.")
    kind = "-".join(["pairs", *([str(per_episode)] if per_episode > 1 else []), *filter(None, [splits.variant])])
    path = beside(store.path, kind)
    seed = (PAIR_SEED if per_episode == 1 else SEVERAL_SEED) if seed is None else seed
    if path.exists():
        pairs = EvaluationPairs.load(path)
        check_fingerprint(path, pairs.fingerprint, store.fingerprint, store.path)
        stored = tuple(tuple(dict.fromkeys(pair.episode for pair in part)) for part in (pairs.validation, pairs.test))
        if (pairs.seed, pairs.per_episode) != (seed, per_episode) or stored != (splits.validation, splits.test):
            raise InputError(f"{path} belongs to another split or pair seed. Delete it to draw the pairs anew.")
    else:
        drawn = [
            draw_pairs(store, episodes, seed)
            if per_episode == 1
            else draw_several_pairs(store, episodes, per_episode, seed)
            for episodes in (splits.validation, splits.test)
        ]
        pairs = EvaluationPairs(drawn[0], drawn[1], seed, store.fingerprint, per_episode)
        with kept_beside(store.path):
            pairs.save(path)
    for name in ("validation", "test"):
        asked = per_episode * len(splits.part(name))
        if len(pairs.part(name)) < asked:
            store.notes.append(
                f"{store.path} has {name} episodes too short for {per_episode} different starts, which have as many as "
                f"they can: {len(pairs.part(name))} pairs instead of {asked}."
            )
    return pairs
