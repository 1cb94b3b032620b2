"""How Push-T data are made: every demonstration of the expert is replayed several times, with noise.

The published data are 185 human demonstrations, each replayed 101 times with noise of unknown strength. They cannot be
generated. These have the same form: the episodes number i * R ... i * R + R - 1 replay demonstration i, which is their
*family*, from the same start and for the same number of steps. The first replay is exact; the others add Gaussian noise
to every action, of the strengths `NOISE_LEVELS` in turn, and steer back towards the demonstrated path, so that the
pusher does not wander off and late pushes still meet the block. The block is not steered: pushing without friction
magnifies small differences, so replays of one demonstration come apart as they go on.

An episode's bytes are a function of (seed, episode number, R) alone.
"""

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import torch

from alewm.envs.push_t import geometry
from alewm.envs.push_t.demonstrations import LONGEST, demonstrate, stream
from alewm.envs.push_t.physics import ACTION_PIXELS
from alewm.envs.push_t.recorder import record_episode, with_small_frames
from alewm.errors import InputError

REPLAYS = 16
"""Episodes per demonstration, unless another number is asked for."""

PUBLISHED_REPLAYS = 101

NOISE_LEVELS = (0.02, 0.05, 0.1)
"""Standard deviations of the noise on each component of an action, taken in turn; an exact replay comes first."""

STEERING = 0.7
"""Share of the way back to the demonstrated path that a noisy action adds to its command."""


def collect_episodes(
    seed: int,
    episode_indices: Iterable[int],
    *,
    image_size: int = geometry.IMAGE_SIZE,
    max_steps: int = LONGEST,
    draw_every: int = 1,
    device: torch.device | str = "cpu",
    replays: int = REPLAYS,
) -> Iterator[dict[str, np.ndarray]]:
    """The episodes of `simulate_episode`, with their frames, `pixels` uint8 [T, Y, X, 3], unless `draw_every` is 0."""
    episodes = (
        simulate_episode(seed, index, max_steps=max_steps, replays=replays, draw_every=draw_every)
        for index in episode_indices
    )
    return with_small_frames(episodes, image_size, device) if draw_every else episodes


collect_episodes_of_101_replays = partial(collect_episodes, replays=PUBLISHED_REPLAYS)
"""`collect_episodes` with as many replays of each demonstration as the published data have."""


def simulate_episode(
    seed: int,
    index: int,
    *,
    max_steps: int = LONGEST,
    replays: int = REPLAYS,
    draw_every: int = 0,
) -> dict[str, np.ndarray]:
    """One finished episode as columns; with `pixels` of native size unless `draw_every` is 0.

    Besides the columns of every episode: `state`, `proprio` and `n_contacts` (`simulator.recorded_columns`), `family`
    (the demonstration's number), `noise_std` and `goal_pose`, the pose the expert had in mind at that row.
    """
    if max_steps < 1 or replays < 1:
        raise InputError(f"Episodes have at least one step and demonstrations one replay, got {max_steps}, {replays}.")
    family, replay = divmod(index, replays)
    demonstration, generator = demonstrate(seed, family), stream(seed, 1, index)
    noise_std = 0.0 if replay == 0 else NOISE_LEVELS[(replay - 1) % len(NOISE_LEVELS)]
    steering = 0.0 if replay == 0 else STEERING

    def act(step: int, state: np.ndarray) -> np.ndarray:
        back = steering * (demonstration.pusher[step] - state[:2]) / ACTION_PIXELS
        return np.asarray(demonstration.actions[step] + back + noise_std * generator.standard_normal(2))

    num_rows = len(demonstration.pusher)
    labels: dict[str, np.ndarray] = {
        "family": np.full(num_rows, family, np.int64),
        "noise_std": np.full(num_rows, noise_std, np.float32),
        "goal_pose": demonstration.goal_poses,
    }
    return record_episode(demonstration.start, act, min(max_steps, num_rows - 1), labels, draw_every)
