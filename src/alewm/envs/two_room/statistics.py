"""What Two-Room data are like: how far the dot gets in a goal's distance, and how often through the door."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from alewm.envs.statistics import GOAL_OFFSET, Figure, TaskStatistics
from alewm.envs.two_room import physics


class TwoRoomStatistics(TaskStatistics):
    """Figures of the pairs (t, t + 25), all of them."""

    PUBLISHED: ClassVar[Mapping[str, Figure]] = {
        "episodes": 10_000,
        "rows": 920_809,
        "length_mean": 92.08,
        "action_std": "0.87 each, simulated",
        "action_saturated_share": "0.64, simulated",
        "presolved_share": "0.086, simulated",
        "distance_25_steps_median": "41.5, simulated",
        "wall_crossed_25_steps_share": "0.25, simulated",
    }

    def __init__(self) -> None:
        self._distances: list[np.ndarray] = []
        self._crossed: list[np.ndarray] = []

    def update(self, episode: Mapping[str, np.ndarray]) -> None:
        """Take in the positions of one episode."""
        starts, goals = episode["proprio"][:-GOAL_OFFSET], episode["proprio"][GOAL_OFFSET:]
        self._distances.append(np.linalg.norm(goals - starts, axis=1))
        self._crossed.append((starts[:, 0] < physics.CENTRE_X) != (goals[:, 0] < physics.CENTRE_X))

    def result(self) -> dict[str, Figure]:
        """Median distance in pixels, and the share of pairs on either side of the wall."""
        distances, crossed = np.concatenate(self._distances), np.concatenate(self._crossed)
        if len(distances) == 0:
            return {}
        return {
            "distance_25_steps_median": float(np.median(distances)),
            "wall_crossed_25_steps_share": float(crossed.mean()),
        }
