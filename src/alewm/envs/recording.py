"""What records the episodes of a task: the protocols of its sources, and what they share.

An episode has a random stream of its own and becomes columns of equal length.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from alewm.errors import InputError


@runtime_checkable
class CollectEpisodes(Protocol):
    """Finished episodes as columns with frames, each a function of (seed, episode index) alone."""

    def __call__(
        self,
        seed: int,
        episode_indices: Iterable[int],
        *,
        image_size: int = ...,
        max_steps: int = ...,
        draw_every: int = ...,
        device: torch.device | str = ...,
    ) -> Iterator[dict[str, np.ndarray]]:
        """One dictionary of columns per episode, in the order asked for.

        `max_steps` cuts episodes early, without changing what comes before the cut. `pixels` has the frames of every
        `draw_every`-th row, the first row's before all; with 0 there is no such column. The others are the same.
        """
        ...


@runtime_checkable
class EpisodeCopies(CollectEpisodes, Protocol):
    """Episodes that are copies of demonstrations, so many and no more."""

    @property
    def num_episodes(self) -> int:
        """All copies of all demonstrations."""
        ...


@runtime_checkable
class CopyDemonstrations(Protocol):
    """Makes an episode source of a file of demonstrations."""

    def __call__(
        self, path: Path, *, copies: int = ..., noise: float = ..., held_out: bool = ...
    ) -> tuple[EpisodeCopies, dict[str, Any]]:
        """Noisy copies of the demonstrations in `path`, and what a data file made of them says of itself.

        `held_out` takes those that the published training file leaves out.
        """
        ...


def episode_stream(seed: int, *key: int) -> np.random.Generator:
    """The random stream of one episode, independent for each (seed, key); most tasks have the index as the key."""
    if seed < 0 or min(key) < 0:
        raise InputError(f"Seeds and episode indices are not negative, got {seed} and {key[-1]}.")
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))


def full_length_episode(
    rows: Sequence[Mapping[str, np.ndarray]], actions: Sequence[np.ndarray], rewards: Sequence[float]
) -> dict[str, np.ndarray]:
    """The columns of an episode that nothing but the limit of its length ended.

    `rows` are what was seen, the reset first, and `actions` and `rewards` what led from each to the next. Row t holds
    the action taken there, so that of the last row is NaN; the reset has no reward and holds NaN.
    """
    last = np.arange(len(rows)) == len(rows) - 1
    none = np.full((1, *actions[0].shape), np.nan, np.float32)
    return {
        "action": np.concatenate((np.stack(actions).astype(np.float32), none)),
        **{name: np.array([row[name] for row in rows]) for name in rows[0]},  # as `np.stack`, in a third of its time
        "reward": np.array([np.nan, *rewards]),
        "terminated": np.zeros(len(rows), bool),
        "truncated": last,
        "step_idx": np.arange(len(rows), dtype=np.int64),
    }
