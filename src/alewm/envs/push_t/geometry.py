"""Push-T's sizes and places, in pixels of its 512-pixel arena: x to the right, y down, angles from x towards y."""

import math

import numpy as np

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
