"""Push-T's dynamics: a pymunk space with walls, a disc that is moved and a T that is pushed. Nothing is drawn here.

The numbers are those of the published environment. What is unusual about them:

- Damping 0 takes the block's velocity away in every substep, so that it moves only while it is pushed.
- All contacts are without friction and without bounce.
- The pusher is kinematic: it pushes the block but nothing stops it, the walls included.
- The block's moment of inertia and centre of gravity are not those of a uniform T (`geometry`).

A *state* is seven numbers: pusher x, y; block x, y and angle; pusher velocity x, y. The block's place is that of its
origin, the middle of the bar's outer edge. A substep leaves the block a velocity that carries it for the next 0.01 s;
it is not among the seven, which is why a state read in mid-push does not continue exactly as the original did.
"""

import math
from typing import NamedTuple

import numpy as np
import pymunk

from alewm.envs.push_t import geometry
from alewm.shapes import Float

STATE_DIM = 7
SUBSTEPS = 10
SUBSTEP_SECONDS = 0.01
ACTION_PIXELS = 100.0
"""How far from the pusher an action of 1 puts the point it is drawn to."""

POSITION_GAIN, VELOCITY_GAIN = 100.0, 20.0
"""The pusher's acceleration is the first times its way to go, less the second times its velocity."""

POSITION_TOLERANCE = 20.0
"""Success needs less than this many pixels, as one norm over pusher x, y and block x, y."""

ANGLE_TOLERANCE = math.pi / 9
"""And less than this many radians between the block's angles."""

AT_REST = (256.0, 400.0, 256.0, 200.0, 0.0, 0.0, 0.0)
"""A state without contact."""


class ContactPoint(NamedTuple):
    """Where two shapes touch: the deepest points of each, and the direction in which they are pushed apart."""

    first: tuple[float, float]
    second: tuple[float, float]
    normal: tuple[float, float]
    is_by_pusher: bool


class PushTWorld:
    """One arena, made in the state it is given and advanced by actions."""

    def __init__(self, state: Float[np.ndarray, "7"]) -> None:
        """Load `state` the published way: place everything, then let one substep pass.

        The substep lets the pusher drift by a hundredth of its velocity and pushes overlaps apart. A world is loaded
        only once: the block's leftover velocity and the solver's memory of old contacts stay behind with the old one,
        so that what follows is a function of the state and the actions.
        """
        self.space = pymunk.Space()
        self.space.damping = 0.0
        corners = geometry.WALLS
        self._walls = [
            pymunk.Segment(self.space.static_body, start, end, geometry.WALL_RADIUS)
            for start, end in zip(corners, corners[1:] + corners[:1], strict=True)
        ]
        self._pusher = pymunk.Body(body_type=pymunk.Body.KINEMATIC)
        self._disc = pymunk.Circle(self._pusher, geometry.PUSHER_RADIUS)
        self._block = pymunk.Body(geometry.BLOCK_MASS, geometry.BLOCK_MOMENT)
        self._block.center_of_gravity = geometry.CENTRE_OF_GRAVITY
        shapes = [pymunk.Poly(self._block, corners) for corners in (geometry.BAR, geometry.STEM)]
        self.space.add(*self._walls, self._pusher, self._disc, self._block, *shapes)

        x, y, block_x, block_y, angle, velocity_x, velocity_y = (float(number) for number in state)
        self._pusher.velocity = velocity_x, velocity_y
        self._pusher.position = x, y
        self._block.angle = angle
        self._block.position = block_x, block_y  # last: turning is about the centre of gravity and moves the origin
        self.space.step(SUBSTEP_SECONDS)

    def step(self, action_x: float, action_y: float) -> None:
        """Pull the pusher towards the point 100 times the action away for a tenth of a second; nothing is clipped."""
        pusher, advance = self._pusher, self.space.step
        x, y = pusher.position
        target_x, target_y = x + ACTION_PIXELS * action_x, y + ACTION_PIXELS * action_y
        velocity_x, velocity_y = pusher.velocity
        for _ in range(SUBSTEPS):
            velocity_x += SUBSTEP_SECONDS * (POSITION_GAIN * (target_x - x) - VELOCITY_GAIN * velocity_x)
            velocity_y += SUBSTEP_SECONDS * (POSITION_GAIN * (target_y - y) - VELOCITY_GAIN * velocity_y)
            pusher.velocity = velocity_x, velocity_y
            advance(SUBSTEP_SECONDS)
            x, y = pusher.position

    def state(self) -> Float[np.ndarray, "7"]:
        """Where everything is now; the block's angle is in [0, 2 pi)."""
        block = self._block
        angle = block.angle % (2 * math.pi)
        return np.array([*self._pusher.position, *block.position, angle, *self._pusher.velocity])

    def block_pose(self) -> tuple[float, float, float]:
        """The block's x, y and angle, the angle as it has been turned."""
        x, y = self._block.position
        return x, y, self._block.angle

    def contacts(self) -> list[ContactPoint]:
        """Every point at which the block touches the pusher or a wall."""
        found: list[ContactPoint] = []
        self._block.each_arbiter(self._collect_contacts, found)
        return found

    def _collect_contacts(self, arbiter: pymunk.Arbiter, found: list[ContactPoint]) -> None:
        points, is_by_pusher = arbiter.contact_point_set, self._disc in arbiter.shapes
        found += (ContactPoint(point.point_a, point.point_b, points.normal, is_by_pusher) for point in points.points)


def goal_distance(state: Float[np.ndarray, "7"], goal: Float[np.ndarray, "7"]) -> float:
    """The larger of two ratios of an error to its tolerance, position and angle: below 1 exactly at success.

    The position's error is one norm over pusher and block together; velocities do not count.
    """
    position_error = math.sqrt(float(np.square(state[:4] - goal[:4]).sum()))
    angle_error = abs(geometry.wrapped(float(state[4] - goal[4])))
    return max(position_error / POSITION_TOLERANCE, angle_error / ANGLE_TOLERANCE)
