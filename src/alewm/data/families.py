"""Which episodes are copies of one demonstration, replayed with different noise.

A model that has trained on a hundred copies of an episode has as good as seen it, so copies must not face each other
across a split. Our collectors label them (column `family`); for files from elsewhere they are found.
"""

from dataclasses import dataclass

import numpy as np

from alewm.data import schema
from alewm.data.checks import fault
from alewm.data.store import EpisodeStore

START_COLUMNS = ("state", "qpos", "proprio")
"""Columns that tell states apart, the most complete first; the first one a file has is looked at."""

_START_DECIMALS = 4


@dataclass(frozen=True)
class Families:
    """The family of each episode, and how it is known."""

    of_episode: np.ndarray
    """int64 [E]."""

    origin: str
    """What says so, in words."""

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
    name = next((name for name in START_COLUMNS if name in store.column_names), None)
    if name is None:
        return None
    starts = store.column(name)[store.offsets].reshape(store.num_episodes, -1).round(_START_DECIMALS)
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
