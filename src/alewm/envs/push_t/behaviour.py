"""How Push-T data are made without human demonstrations: by noisy replays of an expert's demonstrations.

The published data are 185 human demonstrations, each replayed 101 times with noise of unknown strength. They cannot be
generated. Ours have the same form. Episodes i * R to i * R + R - 1 replay demonstration i, their *family*, from the
same start and for the same number of steps. The first replay is exact. The others add Gaussian noise to every action,
of the strengths `NOISE_LEVELS` in turn, and steer back towards the demonstrated path, so that the pusher does not
wander off and late pushes still meet the block. The block is not steered: pushing without friction magnifies small
differences, so replays of one demonstration diverge over time.

An episode's bytes are a function of (seed, episode number, R) alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import torch

from alewm.envs.push_t import physics
from alewm.envs.push_t.env import recorded_columns
from alewm.envs.push_t.expert import LONGEST, demonstrate
from alewm.envs.push_t.physics import ACTION_PIXELS, PushTWorld
from alewm.envs.push_t.render import shared_renderer
from alewm.envs.recording import episode_stream, full_length_episode
from alewm.errors import InputError
from alewm.resize import area_downsample
from alewm.shapes import Float

REPLAYS = 16
"""Episodes per demonstration, unless another number is asked for."""

NOISE_LEVELS = (0.02, 0.05, 0.1)
"""Standard deviations of the noise on each component of an action, taken in turn; an exact replay comes first."""

STEERING = 0.7
"""Share of the way back to the demonstrated path that a noisy action adds to its command."""


def collect_episodes(
    seed: int,
    episode_indices: Iterable[int],
    *,
    image_size: int = physics.IMAGE_SIZE,
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


def simulate_episode(
    seed: int,
    index: int,
    *,
    max_steps: int = LONGEST,
    replays: int = REPLAYS,
    draw_every: int = 0,
) -> dict[str, np.ndarray]:
    """One finished episode as columns; with `pixels` of native size unless `draw_every` is 0.

    Besides the columns of every episode: `state`, `proprio` and `n_contacts` (`env.recorded_columns`), `family`
    (the demonstration's number), `noise_std` and `goal_pose`, the pose the expert had in mind at that row.
    """
    if max_steps < 1 or replays < 1:
        raise InputError(f"Episodes have at least one step and demonstrations one replay, got {max_steps}, {replays}.")
    family, replay = divmod(index, replays)
    demonstration, generator = demonstrate(seed, family), episode_stream(seed, 1, index)
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


Act = Callable[[int, np.ndarray], np.ndarray]
"""(step, state [7]) to an action [2]."""


def record_episode(
    start: Float[np.ndarray, "7"],
    act: Act,
    num_steps: int,
    labels: Mapping[str, np.ndarray],
    draw_every: int = 0,
) -> dict[str, np.ndarray]:
    """A finished episode as columns; with `pixels` of native size, first, unless `draw_every` is 0.

    `labels` are further columns, of `num_steps` + 1 rows or more. Actions are executed as they are recorded: in
    float32.
    """
    world, state, size = PushTWorld(start), start, physics.IMAGE_SIZE
    rows: list[dict[str, np.ndarray]] = []
    actions: list[np.ndarray] = []
    # Drawn in place: frames that are gathered first and stacked then take longer to copy than to draw.
    drawn, draw = range(0, num_steps + 1, draw_every) if draw_every else range(0), shared_renderer()
    frames = np.empty((len(drawn), size, size, 3), np.uint8)
    for step in range(num_steps + 1):
        contacts = world.contacts()
        if step in drawn:
            draw(world.state(), contacts, out=frames[step // draw_every])
        rows.append({**recorded_columns(state, contacts), **{name: values[step] for name, values in labels.items()}})
        if step < num_steps:
            actions.append(act(step, state).astype(np.float32))
            world.step(*actions[-1].astype(np.float64))
            state = world.state()
    columns = full_length_episode(rows, actions, [0.0] * num_steps)
    return {"pixels": frames, **columns} if draw_every else columns


def with_small_frames(
    episodes: Iterator[dict[str, np.ndarray]], image_size: int, device: torch.device | str
) -> Iterator[dict[str, np.ndarray]]:
    """The same episodes with frames area-averaged to `image_size` on `device`."""
    for episode in episodes:
        if image_size != physics.IMAGE_SIZE:
            native = torch.from_numpy(episode["pixels"]).to(device)
            episode["pixels"] = area_downsample(native, image_size).cpu().numpy()
        yield episode
