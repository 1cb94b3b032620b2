"""The weak policy of the public Push-T collector, to compare with: episodes without frames.

Others report 30 to 40 % success with such data, and about 90 % with the published demonstrations. Every step draws a
point within 100 pixels of the pusher on each axis, moves it into the square of 100 pixels around the block's origin,
and commands it, clipped to [-1, 1]. Starts may overlap. (In the public collector an episode ends when it meets a random
goal, which hardly ever happens.)
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from alewm.envs.push_t.behaviour import record_episode
from alewm.envs.push_t.env import BLOCK_HIGH, BLOCK_LOW, PUSHER_HIGH, PUSHER_LOW
from alewm.envs.push_t.physics import ACTION_PIXELS
from alewm.envs.recording import episode_stream

STEPS = 100
REACH = 100.0
"""Pixels that a commanded point may lie from the pusher, and from the block's origin, on each axis."""


def weak_episodes(seed: int, episode_indices: Iterable[int]) -> Iterator[dict[str, np.ndarray]]:
    """Finished episodes as columns, each a function of the seed and its number."""
    return (_episode(seed, index) for index in episode_indices)


def _episode(seed: int, index: int) -> dict[str, np.ndarray]:
    generator = episode_stream(seed, index)
    pusher, block = generator.uniform(PUSHER_LOW, PUSHER_HIGH, 2), generator.uniform(BLOCK_LOW, BLOCK_HIGH, 2)
    start = np.array([*pusher, *block, generator.uniform(0, 2 * math.pi), 0.0, 0.0])

    def act(step: int, state: np.ndarray) -> np.ndarray:
        point = state[:2] + generator.uniform(-REACH, REACH, 2)
        point = point.clip(state[2:4] - REACH, state[2:4] + REACH)
        return np.asarray(((point - state[:2]) / ACTION_PIXELS).clip(-1, 1))

    return record_episode(start, act, STEPS, {})
