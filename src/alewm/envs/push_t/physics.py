"""Push-T's sizes and dynamics: a pymunk space with walls, a disc that is moved and a T that is pushed; no drawing.

Lengths are in pixels of the 512-pixel arena: x to the right, y down, angles from x towards y. The numbers are those of
the published environment. What is unusual about them:

- Damping 0 takes the block's velocity away in every substep, so that it moves only while it is pushed.
- All contacts are without friction and without bounce.
- The pusher is kinematic: it pushes the block but nothing stops it, the walls included.
- The block's moment of inertia and centre of gravity are not those of a uniform T.

A *state* is seven numbers: pusher x, y; block x, y and angle; pusher velocity x, y. The block's place is that of its
origin, the middle of the bar's outer edge. A substep leaves the block a velocity that carries it for the next 0.01 s;
it is not among the seven, which is why a state read in mid-push does not continue exactly as the original did.
"""

import math
from typing import NamedTuple

import numpy as np
import pymunk

from alewm.shapes import Float

ARENA_SIZE = 512
"""Pixels per side of the arena and of the canvas it is drawn on."""

IMAGE_SIZE = 224
"""Pixels per side of the native image."""

PUSHER_RADIUS = 15.0

BAR = ((-60.0, 0.0), (60.0, 0.0), (60.0, 30.0), (-60.0, 30.0))
"""Corners of the T's bar, relative to the block's origin, the middle of the bar's outer edge."""

STEM = ((-15.0, 30.0), (15.0, 30.0), (15.0, 120.0), (-15.0, 120.0))
"""Corners of the T's stem, which points along +y at angle 0: down in the image."""

OUTLINE = (
    (-60.0, 0.0),
    (60.0, 0.0),
    (60.0, 30.0),
    (15.0, 30.0),
    (15.0, 120.0),
    (-15.0, 120.0),
    (-15.0, 30.0),
    (-60.0, 30.0),
)
"""Corners of the whole T, in order."""

CENTRE_OF_GRAVITY = (0.0, 45.0)
"""Relative to the origin: the mean of the centres of bar and stem, whatever their masses."""

BLOCK_MASS = 1.0
BLOCK_MOMENT = 3000.0
"""As the published environment has it: twice the bar's moment about the origin. The stem does not enter."""

WALLS = ((5.0, 5.0), (506.0, 5.0), (506.0, 506.0), (5.0, 506.0))
"""Corners of the square of walls."""

WALL_RADIUS = 2.0


_LOW_CORNERS, _HIGH_CORNERS = (np.array([corners[place] for corners in (BAR, STEM)]) for place in (0, 2))


def rotation(angle: float) -> Float[np.ndarray, "2 2"]:
    """The matrix that turns column vectors by `angle`."""
    cosine, sine = math.cos(angle), math.sin(angle)
    return np.array([[cosine, -sine], [sine, cosine]])


def placed(
    points: Float[np.ndarray, "corners 2"], origin: Float[np.ndarray, "2"], angle: float
) -> Float[np.ndarray, "corners 2"]:
    """`points` of a block, given relative to its origin, in the arena."""
    return np.asarray(points @ rotation(angle).T + origin)


def distance_to_block(points: Float[np.ndarray, "*points 2"]) -> Float[np.ndarray, "*points"]:
    """From each point, given relative to the block's origin and angle, to the nearest of the block; 0 inside."""
    gaps = np.maximum(_LOW_CORNERS - points[..., None, :], points[..., None, :] - _HIGH_CORNERS).clip(0)
    return np.asarray(np.sqrt(np.square(gaps).sum(-1)).min(-1))


def wrapped(angle: float) -> float:
    """The same direction in [-pi, pi]."""
    return math.remainder(angle, 2 * math.pi)


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
        corners = WALLS
        self._walls = [
            pymunk.Segment(self.space.static_body, start, end, WALL_RADIUS)
            for start, end in zip(corners, corners[1:] + corners[:1], strict=True)
        ]
        self._pusher = pymunk.Body(body_type=pymunk.Body.KINEMATIC)
        self._disc = pymunk.Circle(self._pusher, PUSHER_RADIUS)
        self._block = pymunk.Body(BLOCK_MASS, BLOCK_MOMENT)
        self._block.center_of_gravity = CENTRE_OF_GRAVITY
        shapes = [pymunk.Poly(self._block, corners) for corners in (BAR, STEM)]
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
    angle_error = abs(wrapped(float(state[4] - goal[4])))
    return max(position_error / POSITION_TOLERANCE, angle_error / ANGLE_TOLERANCE)
