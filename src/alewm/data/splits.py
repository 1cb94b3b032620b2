"""Training, validation and test episodes of a file, and the pairs of start and goal that are evaluated.

Both are decided once, written beside the file, and the same for everyone.

Episodes are split, never windows: neighbouring windows share frames, and a validation loss over them would flatter us.
Where episodes are noisy copies of one demonstration, whole families of copies are split. Our collectors label families
(column `family`); in files from elsewhere they are found by equal length and start.

There is one pair per held-out episode. Where methods are to be told apart more finely there are several, drawn by
themselves and kept in a file of their own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from alewm.config import ADDED_LATER, to_dict
from alewm.data import schema
from alewm.data.checks import fault
from alewm.data.schema import beside, check_fingerprint, kept_beside, read_sidecar, write_sidecar
from alewm.data.store import EpisodeStore
from alewm.errors import InputError

START_COLUMNS = ("state", "qpos", "proprio")
"""Columns that tell states apart, the most complete first; the first one a file has is looked at."""

_START_DECIMALS = 4


@dataclass(frozen=True)
class Families:
    """The family of each episode, and how it is known."""

    of_episode: np.ndarray
    """int64 [E]."""

    origin: str
    """How the families were found, in words."""

    @property
    def count(self) -> int:
        """How many families there are."""
        return len(np.unique(self.of_episode))


def find_families(store: EpisodeStore) -> Families | None:
    """The families of `store`: as labelled, else episodes of equal length and start state; None where none are copies.

    Where every episode has the same length and start, nothing tells copies from episodes of an environment that always
    starts alike, and none are assumed; nor where there are fewer than two episodes per family, since some starts are
    equal by chance.
    """
    if schema.FAMILY in store.column_names:
        return Families(_labelled(store), f"as labelled in column {schema.FAMILY!r}")
    name = next((name for name in START_COLUMNS if name in store.numeric_names), None)
    if name is None:
        return None
    starts = store.column(name)[store.offsets].reshape(store.num_episodes, -1)
    starts = starts if starts.dtype.kind == "b" else starts.round(_START_DECIMALS)
    keys = np.column_stack([store.lengths, starts])
    _, of_episode = np.unique(keys, axis=0, return_inverse=True)
    families = Families(of_episode.reshape(-1).astype(np.int64), f"found by equal length and first {name!r}")
    return families if 1 < families.count <= store.num_episodes / 2 else None


def _labelled(store: EpisodeStore) -> np.ndarray:
    labels = store.column(schema.FAMILY)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        found = f"{labels.dtype} {list(labels.shape)}"
        raise fault(
            store.path, schema.FAMILY, None, f"one integer per row was expected, found {found}.", "Label it again."
        )
    of_episode: np.ndarray = labels[store.offsets].astype(np.int64)
    wrong = labels != np.repeat(of_episode, store.lengths)
    if wrong.any():
        row = int(wrong.argmax())
        problem = f"family {labels[row]} in an episode that began in family {labels[row - 1]}."
        raise fault(store.path, schema.FAMILY, row, problem, "Give every row of an episode the same family.")
    return of_episode


SPLIT_SEED = 3072
NUM_VALIDATION = 100
NUM_TEST = 200
NUM_VALIDATION_FAMILIES = 10
NUM_TEST_FAMILIES = 20
MIN_HELD_OUT_LENGTH = 26
"""Rows a held-out episode needs: a start and a goal 25 steps later."""

SplitBy = Literal["family", "episode"]
BY_EPISODE = "by-episode"

# Small files give at most a tenth to validation and a fifth to test, so that most of them is left to train on.
_VALIDATION_SHARE = 10
_TEST_SHARE = 5


@dataclass(frozen=True)
class Splits:
    """Episode numbers of each part, increasing."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]
    seed: int
    fingerprint: str
    """Of the data file the numbers refer to."""
    families: str = ""
    """How many families of copies were split and how they are known; empty where episodes were split."""
    variant: str = ""
    """Empty for the usual split of the file; `by-episode` where copies face each other, as in the paper."""

    def part(self, name: str) -> tuple[int, ...]:
        """The episodes of `train`, `validation` or `test`."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        if name not in parts:
            raise InputError(f"Unknown split {name!r}; choose train, validation or test.")
        return parts[name]

    def save(self, path: Path) -> None:
        write_sidecar(path, to_dict(self))

    @classmethod
    def load(cls, path: Path) -> "Splits":
        return read_sidecar(path, cls)


def held_out_counts(num_eligible: int) -> tuple[int, int]:
    """How many episodes validation and test get of `num_eligible`: 100 and 200, or a tenth and a fifth if fewer."""
    if num_eligible < 3:
        raise InputError(
            f"Only {num_eligible} episodes have {MIN_HELD_OUT_LENGTH} rows or more; at least 3 are needed, one each to "
            f"train, validate and test. Record longer episodes, or more."
        )
    validation = min(NUM_VALIDATION, max(1, num_eligible // _VALIDATION_SHARE))
    return validation, min(NUM_TEST, max(1, num_eligible // _TEST_SHARE))


def split_by_episode(lengths: np.ndarray, seed: int = SPLIT_SEED) -> Splits:
    """A random split of episodes with these `lengths`; those under 26 rows are never held out."""
    eligible = np.flatnonzero(lengths >= MIN_HELD_OUT_LENGTH)
    num_validation, num_test = held_out_counts(len(eligible))
    order = np.random.default_rng(seed).permutation(eligible)
    validation, test = order[:num_validation], order[num_validation : num_validation + num_test]
    train = np.setdiff1d(np.arange(len(lengths)), np.concatenate([validation, test]))
    return Splits(_numbers(train), _numbers(validation), _numbers(test), seed, fingerprint="")


def split_by_family(lengths: np.ndarray, families: np.ndarray, seed: int = SPLIT_SEED) -> Splits:
    """A split in which copies of one demonstration never face each other.

    `families` names the demonstration of each episode. 10 families are held out for validation and 20 for test: more if
    those have fewer than 100 and 200 episodes, but at most a tenth and a fifth of all. 100 and 200 episodes are drawn
    evenly from them, and their other copies stay unused.
    """
    if families.shape != lengths.shape:
        raise InputError(f"One family per episode was expected: {len(lengths)}, got {families.shape}.")
    rng = np.random.default_rng(seed)
    eligible = lengths >= MIN_HELD_OUT_LENGTH
    candidates = rng.permutation(np.unique(families[eligible]))
    if len(candidates) < 3:
        raise InputError(
            f"Only {len(candidates)} families of copies have episodes of {MIN_HELD_OUT_LENGTH} rows or more; at least "
            f"3 are needed, one each to train, validate and test. Split by episode instead (--split episode)."
        )
    sizes = np.array([(eligible & (families == family)).sum() for family in candidates])
    most_validation, most_test = (max(1, len(sizes) // share) for share in (_VALIDATION_SHARE, _TEST_SHARE))
    num_validation = min(most_validation, _num_families(sizes, NUM_VALIDATION_FAMILIES, NUM_VALIDATION))
    num_test = min(most_test, _num_families(sizes[num_validation:], NUM_TEST_FAMILIES, NUM_TEST))
    held_out = candidates[:num_validation], candidates[num_validation : num_validation + num_test]
    parts = []
    for chosen, count in zip(held_out, (NUM_VALIDATION, NUM_TEST), strict=True):
        members = [rng.permutation(np.flatnonzero(eligible & (families == family))) for family in chosen]
        # Turn by turn, so that no family gets a second episode before each has its first.
        turns = [int(m[i]) for i in range(max(map(len, members))) for m in members if i < len(m)]
        parts.append(turns[:count])
    train = np.flatnonzero(~np.isin(families, np.concatenate(held_out)))
    return Splits(_numbers(train), _numbers(parts[0]), _numbers(parts[1]), seed, fingerprint="")


def _num_families(sizes: np.ndarray, fewest: int, num_episodes: int) -> int:
    """How many families of these `sizes`, in this order, are at least `fewest` and have `num_episodes` episodes."""
    return max(fewest, int(np.searchsorted(np.cumsum(sizes), num_episodes)) + 1)


def load_or_make_splits(store: EpisodeStore, by: SplitBy = "family") -> Splits:
    """The splits stored beside `store`; made and stored there if there are none.

    `by` family keeps copies together, and is the same as by episode for a file without copies. By episode, a file with
    copies has a second set of splits.
    """
    path, variant = beside(store.path, "splits"), ""
    # Reuse the families of the usual split: finding them reads a whole column.
    usual = _load(path, store) if path.exists() else None
    families = find_families(store) if usual is None else None
    if by == "episode" and (families is not None or (usual is not None and usual.families)):
        path, variant, families = beside(store.path, f"splits-{BY_EPISODE}"), BY_EPISODE, None
        usual = _load(path, store) if path.exists() else None
    splits = usual or replace(_split(store, families), fingerprint=store.fingerprint, variant=variant)
    if usual is None:
        with kept_beside(store.path):
            splits.save(path)
    _note(store, splits)
    return splits


def _load(path: Path, store: EpisodeStore) -> Splits:
    splits = Splits.load(path)
    check_fingerprint(path, splits.fingerprint, store.fingerprint, store.path)
    parts, last = (splits.train, splits.validation, splits.test), store.num_episodes - 1
    numbers = [number for part in parts for number in part]
    if not all(parts) or len(set(numbers)) < len(numbers) or min(numbers) < 0 or max(numbers) > last:
        raise InputError(
            f"{path} must name episodes from 0 to {last}, none of them twice and some for every part. Restore it from "
            f"a copy, or delete it to split anew."
        )
    if splits.seed != SPLIT_SEED:
        raise InputError(
            f"{path} was made with split seed {splits.seed}, not {SPLIT_SEED} as everyone's. Delete it to split anew."
        )
    return splits


def _split(store: EpisodeStore, families: Families | None) -> Splits:
    if families is None:
        return split_by_episode(store.lengths)
    splits = split_by_family(store.lengths, families.of_episode)
    return replace(splits, families=f"{families.count} families of copies, {families.origin}")


def _note(store: EpisodeStore, splits: Splits) -> None:
    if splits.families:
        num_unused = store.num_episodes - sum(len(splits.part(name)) for name in ("train", "validation", "test"))
        store.notes.append(
            f"{store.path} has {splits.families}. Whole families are held out; {num_unused} more copies of what is "
            f"held out stay unused."
        )
    if len(splits.validation) < NUM_VALIDATION or len(splits.test) < NUM_TEST:
        store.notes.append(
            f"{store.path} has {store.num_episodes} episodes. Held out for validation: {len(splits.validation)} "
            f"(of large files {NUM_VALIDATION}); for test: {len(splits.test)} (of large files {NUM_TEST})."
        )


def _numbers(episodes: Sequence[int] | np.ndarray) -> tuple[int, ...]:
    return tuple(sorted(int(episode) for episode in episodes))


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
    seed: int
    fingerprint: str
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
        write_sidecar(path, to_dict(self))

    @classmethod
    def load(cls, path: Path) -> "EvaluationPairs":
        return read_sidecar(path, cls)


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


def load_or_draw_pairs(store: EpisodeStore, splits: Splits, *, per_episode: int = 1) -> EvaluationPairs:
    """The pairs stored beside `store`; drawn and stored there if there are none.

    With `per_episode` above one they are others, in a file of their own: `two-room.pairs-5.json`.
    """
    if per_episode < 1:
        raise InputError(f"An episode has at least one pair, asked {per_episode}.")
    kind = "-".join(["pairs", *([str(per_episode)] if per_episode > 1 else []), *filter(None, [splits.variant])])
    path = beside(store.path, kind)
    seed = PAIR_SEED if per_episode == 1 else SEVERAL_SEED
    if path.exists():
        pairs = EvaluationPairs.load(path)
        check_fingerprint(path, pairs.fingerprint, store.fingerprint, store.path)
        for pair in (*pairs.validation, *pairs.test):
            is_inside = 0 <= pair.start_step < _num_starts(store, pair.episode)
            if not is_inside or pair != _pair_at(store, pair.episode, pair.start_step):
                raise InputError(
                    f"{path} has a pair that {store.path} cannot have: {pair}. Restore it from a copy, or delete it to "
                    f"draw the pairs anew."
                )
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
