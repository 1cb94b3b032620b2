"""What Push-T data are like: how often and where the block is pushed, how far it gets, and where it stays."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from alewm.envs.push_t import physics
from alewm.envs.task import GOAL_OFFSET, Figure, TaskStatistics
from alewm.shapes import Bool, Float, Int

FACES = ("bar outside", "bar ends", "bar inside", "stem sides", "stem end", "concave corners")
"""Where the pusher can touch the block."""

_MOVED = 0.5  # pixels: the block counts as moved
_TURNED = np.radians(0.2)
_NEAR_CENTRE, _NEAR_BORDER = 120.0, 60.0
_ANGLE_RANGES = 12


def block_displacements(state: Float[np.ndarray, "rows 7"], steps: int = GOAL_OFFSET) -> Float[np.ndarray, " pairs"]:
    """Pixels between the block's places at t and t + `steps`, for every t."""
    return np.linalg.norm(state[steps:, 2:4] - state[:-steps, 2:4], axis=1) if len(state) > steps else np.empty(0)


def is_moving(state: Float[np.ndarray, "rows 7"]) -> Bool[np.ndarray, " steps"]:
    """Whether the block moves by more than half a pixel, step by step."""
    return np.asarray(block_displacements(state, 1) > _MOVED)


def turns(state: Float[np.ndarray, "rows 7"]) -> Float[np.ndarray, " steps"]:
    """Radians by which the block turns, step by step."""
    angles = state[:, 4]
    return np.asarray((np.diff(angles) + np.pi) % (2 * np.pi) - np.pi)


def touched_faces(state: Float[np.ndarray, "touching 7"], num_contacts: Int[np.ndarray, " touching"]) -> np.ndarray:
    """The index in `FACES` of the face each pusher is at; two contacts at once are a concave corner."""
    way, angle = state[:, :2] - state[:, 2:4], state[:, 4]
    cosine, sine = np.cos(angle), np.sin(angle)
    x = np.abs(cosine * way[:, 0] + sine * way[:, 1])
    y = cosine * way[:, 1] - sine * way[:, 0]
    half_bar, half_stem, bar_end, stem_end = 60.0, 15.0, 30.0, 120.0
    is_at_bar = y - bar_end < np.maximum(x - half_stem, 0)
    return np.select(
        [num_contacts > 1, y < np.minimum(0, half_bar - x), is_at_bar & (x - half_bar > y - bar_end), is_at_bar],
        [5, 0, 1, 2],
        np.where(y - stem_end > np.maximum(x - half_stem, 0), 4, 3),
    )


class PushTStatistics(TaskStatistics):
    """Figures of rows, of steps and of pairs (t, t + 25).

    For a substitute of the published data to be worth training on, actions should have a std of 0.15 to 0.25 and be
    strongly autocorrelated, the pusher should touch the block in 40 to 60 % of steps, on every face, and turn it both
    ways, and the block should mostly move by 10 to 100 pixels in 25 steps, within 120 pixels of the centre.
    """

    PUBLISHED: ClassVar[Mapping[str, Figure]] = {
        "episodes": 18_685,
        "rows": 2_336_736,
        "length_mean": 125.1,
        "length_min": 49,
        "length_max": 246,
        "action_mean": (-0.00781, 0.00686),
        "action_std": (0.20824, 0.20649),
        "action_min": "-1.50, the smaller",
        "action_max": "2.04, the larger",
        "action_outside_share": 0.0012,
        "action_autocorrelation": "high",
        "block_position_mean": "255, 266: its authors' constants",
        "block_position_std": "52.7, 57.5: its authors' constants",
        "pusher_position_std": "101, 87: its authors' constants",
        "pusher_position_min": (-153.0, -91.0),
        "pusher_position_max": (666.0, 724.0),
        "pusher_velocity_std": "74.8, 74.1: its authors' constants",
        "near_border_share": "rare",
    }

    def __init__(self) -> None:
        self._states: list[np.ndarray] = []
        self._displacements: list[np.ndarray] = []
        self._is_moving: list[np.ndarray] = []
        self._turns: list[np.ndarray] = []
        self._num_contacts: list[np.ndarray] = []

    def update(self, episode: Mapping[str, np.ndarray]) -> None:
        """Take in the states of one episode, and its contacts if they were recorded."""
        state = np.asarray(episode["state"], np.float64)
        self._states.append(state)
        self._displacements.append(block_displacements(state))
        self._is_moving.append(is_moving(state))
        self._turns.append(turns(state))
        if "n_contacts" in episode:
            self._num_contacts.append(np.asarray(episode["n_contacts"], np.int64))

    def result(self) -> dict[str, Figure]:
        """Shares are of steps (contacts, motion, turns), of contacts (faces), of pairs or of rows (places)."""
        if not self._states:
            return {}
        state = np.concatenate(self._states)
        off_centre = np.abs(state[:, 2:4] - physics.ARENA_SIZE / 2).max(1)
        return {
            **self._contact_figures(state),
            **self._motion_figures(),
            "block_position_mean": state[:, 2:4].mean(0).tolist(),
            "block_position_std": state[:, 2:4].std(0).tolist(),
            "near_centre_share": float((off_centre <= _NEAR_CENTRE).mean()),
            "near_border_share": float((off_centre >= physics.ARENA_SIZE / 2 - _NEAR_BORDER).mean()),
            "least_share_of_30_degrees": float(_shares(state[:, 4] % (2 * np.pi)).min()),
            "pusher_position_std": state[:, :2].std(0).tolist(),
            "pusher_position_min": state[:, :2].min(0).tolist(),
            "pusher_position_max": state[:, :2].max(0).tolist(),
            "pusher_velocity_std": state[:, 5:].std(0).tolist(),
        }

    def _contact_figures(self, state: np.ndarray) -> dict[str, Figure]:
        if len(self._num_contacts) < len(self._states):
            return {}
        num_contacts = np.concatenate(self._num_contacts)
        is_first = np.zeros(len(num_contacts), bool)
        is_first[np.cumsum([0, *(len(part) for part in self._num_contacts[:-1])])] = True
        is_touching = num_contacts > 0
        faces = touched_faces(state[is_touching], num_contacts[is_touching])
        counts = np.bincount(faces, minlength=len(FACES)) / max(1, len(faces))
        shares = {
            f"contact_at_{name.replace(' ', '_')}_share": float(count)
            for name, count in zip(FACES, counts, strict=True)
        }
        return {"contact_share": float(is_touching[~is_first].mean()), **shares}

    def _motion_figures(self) -> dict[str, Figure]:
        moved, turned = np.concatenate(self._displacements), np.concatenate(self._turns)
        figures: dict[str, Figure] = {
            "block_moving_share": float(np.concatenate(self._is_moving).mean()),
            "turning_left_share": float((turned < -_TURNED).mean()),
            "turning_right_share": float((turned > _TURNED).mean()),
        }
        if len(moved) == 0:
            return figures
        return figures | {
            "block_25_steps_mean": float(moved.mean()),
            "block_25_steps_median": float(np.median(moved)),
            "block_25_steps_below_5_share": float((moved < 5).mean()),
            "block_25_steps_10_to_100_share": float(((moved >= 10) & (moved <= 100)).mean()),
        }


def _shares(angles: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " ranges"]:
    counts, _ = np.histogram(angles, _ANGLE_RANGES, (0.0, 2 * np.pi))
    return np.asarray(counts / len(angles))
