"""What the data of each task are like: figures of a file, and what is known of the published file."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from alewm.data.splits import GOAL_OFFSET
from alewm.envs.two_room import CENTRE_X
from alewm.shapes import Bool, Float, Int

# Copies of what the simulators say, whose packages are optional.
_PUSH_T_ARENA, _REACHER_TARGET_RADIUS, _CUBE_SUCCESS_DISTANCE = 512, 0.015, 0.04

Figure = int | float | str | Sequence[float]
"""One statistic: a number, one per dimension, or words where a published source has no number."""


PUBLISHED: Mapping[str, Mapping[str, Figure]] = {
    "two-room": {
        "episodes": 10_000,
        "rows": 920_809,
        "length_mean": 92.08,
        "action_std": "0.87 each, simulated",
        "action_saturated_share": "0.64, simulated",
        "presolved_share": "0.086, simulated",
        "distance_25_steps_median": "41.5, simulated",
        "wall_crossed_25_steps_share": "0.25, simulated",
    },
    "reacher": {
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
    },
    "cube": {
        "episodes": 10_000,
        "length_mean": 201.0,
        "action_std": "0.30, 0.40, 0.65, 0.40, 0.25, simulated",
        "cube_moving_share": "0.42, simulated",
        "presolved_share": "0.39 to 0.43, simulated",
    },
    "push-t": {
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
    },
}
"""What is known of each task's published file, under the names of its figures here and in `alewm.data.inspection`.

A figure that was not measured on the file itself is written as words that say so.
"""

Episodes = Iterable[Mapping[str, np.ndarray]]
"""The recorded columns `[T, ...]` of each episode, without pixels; the last action may be NaN.

A file from elsewhere may lack a column, which is then a `KeyError`.
"""


def two_room_figures(episodes: Episodes) -> dict[str, Figure]:
    """Of all pairs (t, t + 25): the median distance in pixels, and the share of pairs on either side of the wall."""
    every_distance, every_crossing = list[np.ndarray](), list[np.ndarray]()
    for episode in episodes:
        starts, goals = episode["proprio"][:-GOAL_OFFSET], episode["proprio"][GOAL_OFFSET:]
        every_distance.append(np.linalg.norm(goals - starts, axis=1))
        every_crossing.append((starts[:, 0] < CENTRE_X) != (goals[:, 0] < CENTRE_X))
    distances = np.concatenate(every_distance)
    if len(distances) == 0:
        return {}
    return {
        "distance_25_steps_median": float(np.median(distances)),
        "wall_crossed_25_steps_share": float(np.concatenate(every_crossing).mean()),
    }


def reacher_figures(episodes: Episodes) -> dict[str, Figure]:
    """Of shoulder and wrist apart: ranges in rad, velocities in rad/s, mean changes over 1 and 25 steps in rad.

    `target_reached_share`, where `finger_pos` and `target_pos` were recorded, is the share of episodes with a row in
    which the finger's centre is inside the hidden target. Which rule the published figure follows is not stated; of six
    that were tried this one comes nearest.
    """
    lowest, highest, velocities = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    changes, far_changes, reached = list[np.ndarray](), list[np.ndarray](), list[bool]()
    for episode in episodes:
        qpos = np.asarray(episode["qpos"], np.float64)
        lowest.append(qpos.min(0))
        highest.append(qpos.max(0))
        velocities.append(np.asarray(episode["qvel"], np.float64))
        changes.append(np.abs(np.diff(qpos, axis=0)))
        far_changes.append(np.abs(qpos[GOAL_OFFSET:] - qpos[:-GOAL_OFFSET]))
        if {"finger_pos", "target_pos"} <= episode.keys():
            distances = np.linalg.norm(episode["target_pos"] - episode["finger_pos"], axis=1)
            reached.append(bool((distances <= _REACHER_TARGET_RADIUS).any()))
    far = np.concatenate(far_changes)
    figures: dict[str, Figure] = {
        "qpos_min": np.min(lowest, axis=0).tolist(),
        "qpos_max": np.max(highest, axis=0).tolist(),
        "qvel_std": np.concatenate(velocities).std(axis=0).tolist(),
        "joint_change_mean": np.concatenate(changes).mean(axis=0).tolist(),
    }
    if reached:
        figures["target_reached_share"] = float(np.mean(reached))
    if len(far):
        figures["joint_change_25_steps_mean"] = far.mean(axis=0).tolist()
    return figures


MOVING_METRES = 0.001
"""A cube that moves farther than this in a step is moving."""


def cube_figures(episodes: Episodes) -> dict[str, Figure]:
    """Share of steps in which the cube moves, of rows in which it is lifted, and how far pairs are apart.

    `cube_within_4_cm_25_steps_share` is the share of all pairs of rows 25 steps apart that are solved at the start.
    """
    moving, every_distance, lifted = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for episode in episodes:
        cube = np.asarray(episode["privileged_block_0_pos"], np.float64)
        moving.append(np.linalg.norm(np.diff(cube, axis=0), axis=1) > MOVING_METRES)
        every_distance.append(np.linalg.norm(cube[GOAL_OFFSET:] - cube[:-GOAL_OFFSET], axis=1))
        lifted.append(cube[:, 2] > _CUBE_SUCCESS_DISTANCE)
    distances = np.concatenate(every_distance)
    figures: dict[str, Figure] = {
        "cube_moving_share": float(np.concatenate(moving).mean()),
        "cube_lifted_share": float(np.concatenate(lifted).mean()),
    }
    if len(distances):
        figures["cube_distance_25_steps_mean"] = float(distances.mean())
        figures["cube_within_4_cm_25_steps_share"] = float((distances <= _CUBE_SUCCESS_DISTANCE).mean())
    return figures


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


def push_t_figures(episodes: Episodes) -> dict[str, Figure]:
    """Shares of steps (contacts, motion, turns), of contacts (faces), of pairs (t, t + 25) or of rows (places).

    Contacts count where every episode has recorded them.

    For a substitute of the published data to be worth training on, actions should have a std of 0.15 to 0.25 and be
    strongly autocorrelated, the pusher should touch the block in 40 to 60 % of steps, on every face, and turn it both
    ways, and the block should mostly move by 10 to 100 pixels in 25 steps, within 120 pixels of the centre.
    """
    states, num_contacts = list[np.ndarray](), list[np.ndarray]()
    for episode in episodes:
        states.append(np.asarray(episode["state"], np.float64))
        if "n_contacts" in episode:
            num_contacts.append(np.asarray(episode["n_contacts"], np.int64))
    if not states:
        return {}
    state = np.concatenate(states)
    off_centre = np.abs(state[:, 2:4] - _PUSH_T_ARENA / 2).max(1)
    return {
        **(_contact_figures(state, num_contacts) if len(num_contacts) == len(states) else {}),
        **_motion_figures(states),
        "block_position_mean": state[:, 2:4].mean(0).tolist(),
        "block_position_std": state[:, 2:4].std(0).tolist(),
        "near_centre_share": float((off_centre <= _NEAR_CENTRE).mean()),
        "near_border_share": float((off_centre >= _PUSH_T_ARENA / 2 - _NEAR_BORDER).mean()),
        "least_share_of_30_degrees": float(_shares(state[:, 4] % (2 * np.pi)).min()),
        "pusher_position_std": state[:, :2].std(0).tolist(),
        "pusher_position_min": state[:, :2].min(0).tolist(),
        "pusher_position_max": state[:, :2].max(0).tolist(),
        "pusher_velocity_std": state[:, 5:].std(0).tolist(),
    }


def _contact_figures(state: Float[np.ndarray, "rows 7"], of_episodes: Sequence[np.ndarray]) -> dict[str, Figure]:
    num_contacts = np.concatenate(of_episodes)
    is_first = np.zeros(len(num_contacts), bool)
    is_first[np.cumsum([0, *(len(part) for part in of_episodes[:-1])])] = True
    is_touching = num_contacts > 0
    faces = touched_faces(state[is_touching], num_contacts[is_touching])
    counts = np.bincount(faces, minlength=len(FACES)) / max(1, len(faces))
    shares = {
        f"contact_at_{name.replace(' ', '_')}_share": float(count) for name, count in zip(FACES, counts, strict=True)
    }
    return {"contact_share": float(is_touching[~is_first].mean()), **shares}


def _motion_figures(states: Sequence[np.ndarray]) -> dict[str, Figure]:
    moved, moving, turned = (
        np.concatenate([measure(state) for state in states]) for measure in (block_displacements, is_moving, turns)
    )
    figures: dict[str, Figure] = {
        "block_moving_share": float(moving.mean()),
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


FIGURES: Mapping[str, Callable[[Episodes], dict[str, Figure]]] = {
    "two-room": two_room_figures,
    "reacher": reacher_figures,
    "cube": cube_figures,
    "push-t": push_t_figures,
}
"""By task."""
