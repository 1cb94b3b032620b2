"""Figures that every data file has: how many rows, how long episodes are, and what the actions are like."""

from collections.abc import Mapping

import numpy as np

from alewm.data import schema

Figure = int | float | list[float]
"""One statistic: a number, or one per action dimension."""


class FileStatistics:
    """Figures of one data file, gathered episode by episode in float64."""

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._actions: list[np.ndarray] = []
        self._is_followed: list[np.ndarray] = []

    def update(self, episode: Mapping[str, np.ndarray]) -> None:
        """Take in the `action` column `[T, A]` of one episode; actions with a NaN do not count."""
        actions = np.asarray(episode[schema.ACTION])
        self._lengths.append(len(actions))
        taken = ~np.isnan(actions).any(axis=1)
        self._actions.append(actions[taken])
        # Whether the next action taken is the next one in time: not across a NaN, nor across episodes.
        self._is_followed.append(np.append(taken[1:], False)[taken])

    def result(self) -> dict[str, Figure]:
        """`episodes`, `rows`, `length_*`; per dimension `action_*`; shares of components and rows at the bounds.

        `action_saturated_share` is the share of components at or beyond ±1, `action_outside_share` that of rows with a
        component strictly beyond; `action_autocorrelation` relates an action to the next of its episode.
        """
        lengths = np.array(self._lengths)
        figures: dict[str, Figure] = {
            "episodes": len(lengths),
            "rows": int(lengths.sum()),
            "length_mean": float(lengths.mean()),
            "length_min": int(lengths.min()),
            "length_max": int(lengths.max()),
        }
        actions = np.concatenate(self._actions).astype(np.float64)
        if len(actions) == 0:
            return figures
        first = np.flatnonzero(np.concatenate(self._is_followed))
        size = np.abs(actions)
        return figures | {
            "action_mean": actions.mean(axis=0).tolist(),
            "action_std": actions.std(axis=0).tolist(),
            "action_min": actions.min(axis=0).tolist(),
            "action_max": actions.max(axis=0).tolist(),
            "action_saturated_share": float((size >= 1).mean()),
            "action_outside_share": float((size > 1).any(axis=1).mean()),
            "action_autocorrelation": _correlation(actions[first], actions[first + 1]).tolist(),
        }


def _correlation(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each column; 0 where one of them never moves."""
    if len(left) == 0:
        return np.zeros(left.shape[1])
    left, right = left - left.mean(axis=0), right - right.mean(axis=0)
    scale = np.sqrt((left**2).mean(axis=0) * (right**2).mean(axis=0))
    correlation: np.ndarray = (left * right).mean(axis=0) / np.where(scale > 0, scale, 1.0)
    return correlation
