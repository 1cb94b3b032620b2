"""What Cube data are like: how much of the time the cube moves, and how often it is back where it was."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from alewm.envs.cube.physics import SUCCESS_DISTANCE
from alewm.envs.statistics import GOAL_OFFSET, Figure, TaskStatistics

MOVING_METRES = 0.001
"""A cube that moves farther than this in a step is moving."""


class CubeStatistics(TaskStatistics):
    """Figures of the cube's positions, gathered episode by episode."""

    PUBLISHED: ClassVar[Mapping[str, Figure]] = {
        "episodes": 10_000,
        "length_mean": 201.0,
        "action_std": "0.30, 0.40, 0.65, 0.40, 0.25, simulated",
        "cube_moving_share": "0.42, simulated",
        "presolved_share": "0.39 to 0.43, simulated",
    }
    """What is known of the published file; words where the figure comes from a simulation of its behaviour."""

    def __init__(self) -> None:
        self._moving: list[np.ndarray] = []
        self._distances: list[np.ndarray] = []
        self._lifted: list[np.ndarray] = []

    def update(self, episode: Mapping[str, np.ndarray]) -> None:
        """Take in one episode: the cube's positions in its column `privileged_block_0_pos` [T, 3]."""
        cube = np.asarray(episode["privileged_block_0_pos"], np.float64)
        self._moving.append(np.linalg.norm(np.diff(cube, axis=0), axis=1) > MOVING_METRES)
        self._distances.append(np.linalg.norm(cube[GOAL_OFFSET:] - cube[:-GOAL_OFFSET], axis=1))
        self._lifted.append(cube[:, 2] > SUCCESS_DISTANCE)

    def result(self) -> dict[str, Figure]:
        """Share of steps in which the cube moves, of rows in which it is lifted, and how far pairs are apart.

        `cube_within_4_cm_25_steps_share` is the share of all pairs of rows 25 steps apart that are solved at the start.
        """
        distances = np.concatenate(self._distances)
        figures: dict[str, Figure] = {
            "cube_moving_share": float(np.concatenate(self._moving).mean()),
            "cube_lifted_share": float(np.concatenate(self._lifted).mean()),
        }
        if len(distances):
            figures["cube_distance_25_steps_mean"] = float(distances.mean())
            figures["cube_within_4_cm_25_steps_share"] = float((distances <= SUCCESS_DISTANCE).mean())
        return figures
