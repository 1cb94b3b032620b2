"""Where Push-T episodes start and what goals they are given when nothing is loaded."""

import math

import numpy as np

from alewm.envs.push_t import geometry
from alewm.shapes import Float

PUSHER_LOW, PUSHER_HIGH = 50.0, 450.0
BLOCK_LOW, BLOCK_HIGH = 100.0, 400.0


def sample_state(generator: np.random.Generator) -> Float[np.ndarray, "7"]:
    """A state at rest: pusher uniform on [50, 450]², block uniform on [100, 400]² at any angle, not overlapping.

    The whole state is drawn again while pusher and block, or block and walls, touch.
    """
    while True:
        pusher = generator.uniform(PUSHER_LOW, PUSHER_HIGH, 2)
        block = generator.uniform(BLOCK_LOW, BLOCK_HIGH, 2)
        angle = generator.uniform(0.0, 2 * math.pi)
        if is_free(pusher, block, angle):
            return np.array([*pusher, *block, angle, 0.0, 0.0])


def is_free(pusher: Float[np.ndarray, "2"], block: Float[np.ndarray, "2"], angle: float, margin: float = 1.0) -> bool:
    """Whether the pusher stays `margin` off the block, and the block off the walls."""
    corners = geometry.placed(np.array(geometry.OUTLINE), block, angle)
    low, high = geometry.WALLS[0][0], geometry.WALLS[2][0]
    clearance = geometry.WALL_RADIUS + margin
    is_inside = bool(corners.min() > low + clearance and corners.max() < high - clearance)
    from_block = geometry.rotation(angle).T @ (pusher - block)
    return is_inside and bool(geometry.distance_to_block(from_block) > geometry.PUSHER_RADIUS + margin)
