"""What Reacher data are like: how far and how fast the joints move."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from alewm.envs.reacher.physics import TARGET_RADIUS
from alewm.envs.statistics import GOAL_OFFSET, Figure, TaskStatistics


class ReacherStatistics(TaskStatistics):
    """Figures of a file's joint angles and velocities, shoulder and wrist apart, gathered episode by episode."""

    PUBLISHED: ClassVar[Mapping[str, Figure]] = {
        "episodes": 10_000,
        "action_std": 0.5767,
        "action_autocorrelation": "near 0",
        "target_reached_share": 0.137,
        "presolved_share": "0.006, simulated",
        "qpos_min": "-6.2, -2.93, simulated",
        "qpos_max": "6.7, 2.93, simulated",
        "qvel_std": "1.35, 2.42, simulated",
        "joint_change_mean": "0.040, 0.074, simulated",
        "joint_change_25_steps_mean": "0.44, 0.42, simulated",
    }
    """What is known of the published file; words where the figure comes from a simulation of its behaviour."""

    def __init__(self) -> None:
        self._lowest: list[np.ndarray] = []
        self._highest: list[np.ndarray] = []
        self._velocities: list[np.ndarray] = []
        self._changes: list[np.ndarray] = []
        self._far_changes: list[np.ndarray] = []
        self._reached: list[bool] = []

    def update(self, episode: Mapping[str, np.ndarray]) -> None:
        """Take in one episode: `qpos`, `qvel` and, if it has them, `finger_pos` and `target_pos`, all [T, 2]."""
        qpos = np.asarray(episode["qpos"], np.float64)
        self._lowest.append(qpos.min(0))
        self._highest.append(qpos.max(0))
        self._velocities.append(np.asarray(episode["qvel"], np.float64))
        self._changes.append(np.abs(np.diff(qpos, axis=0)))
        self._far_changes.append(np.abs(qpos[GOAL_OFFSET:] - qpos[:-GOAL_OFFSET]))
        if {"finger_pos", "target_pos"} <= episode.keys():
            distances = np.linalg.norm(episode["target_pos"] - episode["finger_pos"], axis=1)
            self._reached.append(bool((distances <= TARGET_RADIUS).any()))

    def result(self) -> dict[str, Figure]:
        """Ranges in rad, velocities in rad/s, mean changes over 1 and 25 steps in rad, and how often targets are met.

        `target_reached_share` is the share of episodes with a row in which the finger's centre is inside the hidden
        target; which rule the published figure follows is not stated; of six that were tried this one comes nearest.
        """
        far = np.concatenate(self._far_changes)
        figures: dict[str, Figure] = {
            "qpos_min": np.min(self._lowest, axis=0).tolist(),
            "qpos_max": np.max(self._highest, axis=0).tolist(),
            "qvel_std": np.concatenate(self._velocities).std(axis=0).tolist(),
            "joint_change_mean": np.concatenate(self._changes).mean(axis=0).tolist(),
        }
        if self._reached:
            figures["target_reached_share"] = float(np.mean(self._reached))
        if len(far):
            figures["joint_change_25_steps_mean"] = far.mean(axis=0).tolist()
        return figures
