"""Training, validation and test episodes of a file: decided once, written beside it, the same for everyone.

Episodes are split, never windows: neighbouring windows share frames, and a validation loss over them would flatter us.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from alewm.config import from_dict, to_dict
from alewm.data.sidecar import beside, check_fingerprint, read_json, write_json
from alewm.data.store import EpisodeStore
from alewm.errors import InputError

SPLIT_SEED = 3072
NUM_VALIDATION = 100
NUM_TEST = 200
MIN_HELD_OUT_LENGTH = 26
"""Rows a held-out episode needs: a start and a goal 25 steps later."""

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
    fingerprint: str = ""
    """Of the data file the numbers refer to."""

    def part(self, name: str) -> tuple[int, ...]:
        """The episodes of `train`, `validation` or `test`."""
        if name not in ("train", "validation", "test"):
            raise InputError(f"Unknown split {name!r}; choose train, validation or test.")
        return getattr(self, name)  # type: ignore[no-any-return]

    def save(self, path: Path) -> None:
        """Write the splits to `path`."""
        write_json(path, to_dict(self))

    @classmethod
    def load(cls, path: Path) -> "Splits":
        """The splits in `path`."""
        return from_dict(cls, read_json(path, ("train", "validation", "test", "seed", "fingerprint")))


def held_out_counts(num_eligible: int) -> tuple[int, int]:
    """How many episodes validation and test get of `num_eligible`: 100 and 200, or a tenth and a fifth if fewer."""
    if num_eligible < 3:
        raise InputError(
            f"Only {num_eligible} episodes have {MIN_HELD_OUT_LENGTH} rows or more; at least 3 are needed, one each to "
            f"train, validate and test. Collect more episodes."
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
    return Splits(_numbers(train), _numbers(validation), _numbers(test), seed)


def split_by_family(
    lengths: np.ndarray, families: np.ndarray, seed: int = SPLIT_SEED, num_families: tuple[int, int] = (10, 20)
) -> Splits:
    """A split in which copies of one demonstration never face each other.

    `families` names the demonstration of each episode. Whole families are held out (`num_families` for validation and
    test), validation and test episodes are drawn evenly from them, and their other copies stay unused.
    """
    if families.shape != lengths.shape:
        raise InputError(f"One family per episode was expected: {len(lengths)}, got {families.shape}.")
    rng = np.random.default_rng(seed)
    eligible = lengths >= MIN_HELD_OUT_LENGTH
    candidates = rng.permutation(np.unique(families[eligible]))
    if len(candidates) <= sum(num_families):
        raise InputError(
            f"{sum(num_families)} families are to be held out, but only {len(candidates)} have episodes of "
            f"{MIN_HELD_OUT_LENGTH} rows or more; nothing would be left to train on. Split by episode instead."
        )
    held_out = candidates[: num_families[0]], candidates[num_families[0] : sum(num_families)]
    parts = []
    for chosen, count in zip(held_out, held_out_counts(int(eligible.sum())), strict=True):
        members = [rng.permutation(np.flatnonzero(eligible & (families == family))) for family in chosen]
        # Turn by turn, so that no family gets a second episode before each has its first.
        turns = [int(m[i]) for i in range(max(map(len, members))) for m in members if i < len(m)]
        parts.append(turns[:count])
    train = np.flatnonzero(~np.isin(families, np.concatenate(held_out)))
    return Splits(_numbers(train), _numbers(parts[0]), _numbers(parts[1]), seed)


def load_or_make_splits(store: EpisodeStore, families: np.ndarray | None = None, seed: int = SPLIT_SEED) -> Splits:
    """The splits stored beside `store`; made and stored there if there are none."""
    path = beside(store.path, "splits")
    if path.exists():
        splits = Splits.load(path)
        check_fingerprint(path, splits.fingerprint, store.fingerprint, store.path)
        if splits.seed != seed:
            raise InputError(f"{path} was made with split seed {splits.seed}, asked {seed}. Delete it to split anew.")
        return splits
    splits = (
        split_by_episode(store.lengths, seed) if families is None else split_by_family(store.lengths, families, seed)
    )
    splits = replace(splits, fingerprint=store.fingerprint)
    splits.save(path)
    if len(splits.validation) < NUM_VALIDATION or len(splits.test) < NUM_TEST:
        store.notes.append(
            f"{store.path} has {store.num_episodes} episodes: {len(splits.validation)} are held out for validation and "
            f"{len(splits.test)} for test, instead of {NUM_VALIDATION} and {NUM_TEST}."
        )
    return splits


def _numbers(episodes: Sequence[int] | np.ndarray) -> tuple[int, ...]:
    return tuple(sorted(int(episode) for episode in episodes))
