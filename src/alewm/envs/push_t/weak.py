"""The public collector's policy: independent jumps of the pusher around the block, without a goal.

Data of this kind gave others models that succeed on 30 to 40 % of their pairs, where the published demonstrations gave
about 90 %. They are here to compare with. Every step draws a point within 100 pixels of the pusher on each axis, moves
it into the square of 100 pixels around the block's origin, and commands it, clipped to [-1, 1]. Episodes last 100
steps. Starts may overlap. (In the public collector an episode would end if a random goal were met, which hardly ever
happens.)
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch

from alewm.envs.push_t import geometry
from alewm.envs.push_t.physics import ACTION_PIXELS
from alewm.envs.push_t.recorder import record_episode, with_small_frames
from alewm.envs.push_t.simulator import BLOCK_HIGH, BLOCK_LOW, PUSHER_HIGH, PUSHER_LOW
from alewm.envs.recording import episode_stream
from alewm.errors import InputError

MAX_STEPS = 100
REACH = 100.0
"""Pixels that a commanded point may lie from the pusher, and from the block's origin, on each axis."""


def collect_episodes(
    seed: int,
    episode_indices: Iterable[int],
    *,
    image_size: int = geometry.IMAGE_SIZE,
    max_steps: int = MAX_STEPS,
    draw_every: int = 1,
    device: torch.device | str = "cpu",
) -> Iterator[dict[str, np.ndarray]]:
    """Finished episodes, with frames unless `draw_every` is 0; columns as in `behaviour`, without its labels."""
    episodes = (simulate_episode(seed, index, max_steps=max_steps, draw_every=draw_every) for index in episode_indices)
    return with_small_frames(episodes, image_size, device) if draw_every else episodes


def simulate_episode(
    seed: int, index: int, *, max_steps: int = MAX_STEPS, draw_every: int = 0
) -> dict[str, np.ndarray]:
    """One finished episode as columns, with `pixels` unless `draw_every` is 0."""
    if max_steps < 1:
        raise InputError(f"Episodes have at least one step, got {max_steps}.")
    generator = episode_stream(seed, index)
    pusher, block = generator.uniform(PUSHER_LOW, PUSHER_HIGH, 2), generator.uniform(BLOCK_LOW, BLOCK_HIGH, 2)
    start = np.array([*pusher, *block, generator.uniform(0, 2 * math.pi), 0.0, 0.0])

    def act(step: int, state: np.ndarray) -> np.ndarray:
        point = state[:2] + generator.uniform(-REACH, REACH, 2)
        point = point.clip(state[2:4] - REACH, state[2:4] + REACH)
        return np.asarray(((point - state[:2]) / ACTION_PIXELS).clip(-1, 1))

    return record_episode(start, act, max_steps, {}, draw_every)
