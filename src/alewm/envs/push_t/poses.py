"""Poses of the block: how far apart two are, when one counts as reached, and where they are drawn from."""

import math
from typing import NamedTuple

import numpy as np

from alewm.envs.push_t import geometry
from alewm.envs.push_t.physics import ANGLE_TOLERANCE, POSITION_TOLERANCE
from alewm.shapes import Float

_KEY_POINTS = ((-60.0, 15.0), (60.0, 15.0), (0.0, 15.0), (0.0, 120.0))


class Pose(NamedTuple):
    """A place of the block's origin and an angle."""

    x: float
    y: float
    angle: float

    @classmethod
    def of(cls, state: Float[np.ndarray, "7"]) -> "Pose":
        """Where the block is in `state`."""
        return cls(float(state[2]), float(state[3]), float(state[4]))


def pose_gap(pose: Pose, goal: Pose) -> float:
    """Mean distance in pixels between four points of the block in two poses: place and angle in one number."""
    cosine, sine = math.cos(pose.angle), math.sin(pose.angle)
    goal_cosine, goal_sine = math.cos(goal.angle), math.sin(goal.angle)
    dx, dy, dc, ds = pose.x - goal.x, pose.y - goal.y, cosine - goal_cosine, sine - goal_sine
    return sum(math.hypot(dx + dc * x - ds * y, dy + ds * x + dc * y) for x, y in _KEY_POINTS) / len(_KEY_POINTS)


def is_reached(pose: Pose, goal: Pose, share: float = 1.0) -> bool:
    """Whether the block is within `share` of 20 pixels and of 20 degrees of its goal."""
    position_error = math.hypot(pose.x - goal.x, pose.y - goal.y)
    angle_error = abs(geometry.wrapped(pose.angle - goal.angle))
    return position_error < share * POSITION_TOLERANCE and angle_error < share * ANGLE_TOLERANCE


def sample_pose(generator: np.random.Generator, spread: float) -> Pose:
    """A pose whose centre of gravity is uniform on a square of half-width `spread`, at a uniform angle."""
    middle = geometry.ARENA_SIZE / 2 + generator.uniform(-spread, spread, 2)
    angle = generator.uniform(0.0, 2 * math.pi)
    origin = middle - geometry.rotation(angle) @ np.array(geometry.CENTRE_OF_GRAVITY)
    return Pose(float(origin[0]), float(origin[1]), angle)
