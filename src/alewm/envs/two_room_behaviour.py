"""How Two-Room data are made: where episodes start and lead, the noisy heuristic that walks there, and the recording.

Every episode has its own random stream, keyed by (seed, episode index). It yields, in this order, the start, the target
and the noise of every step, so that an episode's bytes depend on nothing else: not on the batch it is simulated in,
not on the worker, not on how many episodes were asked for.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
import torch

from alewm.envs import two_room
from alewm.envs.recording import episode_stream
from alewm.errors import InputError
from alewm.shapes import Float, Tensor

MAX_STEPS = 100
"""Environment steps after which a recorded episode is cut."""

ACTION_NOISE_STD = 2.0
"""Standard deviation of the Gaussian noise on each component of the heuristic's unit direction, before clamping."""

_DOOR_REACHED = 10.5  # 1.5 dot radii
_EPISODES_AT_ONCE = 256


def noisy_heuristic(
    position: Float[Tensor, "B 2"], target: Float[Tensor, "B 2"], noise: Float[Tensor, "B 2"]
) -> Float[Tensor, "B 2"]:
    """The action of a walker that heads for the door, then for the target, and staggers; `noise` is standard normal."""
    door = position.new_tensor(two_room.DOOR_CENTRE).expand_as(position)
    must_cross = two_room.is_left(position) != two_room.is_left(target)
    heads_for_door = must_cross & (two_room.distance(position, door) > _DOOR_REACHED)
    waypoint = torch.where(heads_for_door[:, None], door, target)
    length = two_room.distance(waypoint, position)[:, None]
    direction = torch.where(length < 1e-8, 0.0, (waypoint - position) / length)
    return (direction + ACTION_NOISE_STD * noise).clamp(-1, 1)


def simulate_episodes(
    seed: int,
    episode_indices: Iterable[int],
    *,
    max_steps: int = MAX_STEPS,
    device: torch.device | str = "cpu",
    episodes_at_once: int = _EPISODES_AT_ONCE,
) -> Iterator[dict[str, np.ndarray]]:
    """Finished episodes in the order asked for, every column but the pixels.

    An episode of n steps has n + 1 rows, the first being the reset. Row t holds the action taken there, so that of the
    last row is NaN; `reward` is 0, and NaN at the reset. Besides: `proprio`, `state`, `goal_state`, `observation` and
    `distance_to_target` (`two_room.recorded_columns`), `terminated`, `truncated`, `step_idx`.
    """
    if max_steps < 1 or episodes_at_once < 1:
        raise InputError(
            f"Episodes have at least one step and batches one episode, got {max_steps}, {episodes_at_once}."
        )
    remaining = iter(episode_indices)
    while indices := list(islice(remaining, episodes_at_once)):
        yield from _simulate_batch(seed, indices, max_steps, torch.device(device))


def collect_episodes(
    seed: int,
    episode_indices: Iterable[int],
    *,
    image_size: int = two_room.IMAGE_SIZE,
    max_steps: int = MAX_STEPS,
    draw_every: int = 1,
    device: torch.device | str = "cpu",
) -> Iterator[dict[str, np.ndarray]]:
    """The episodes of `simulate_episodes`, with their frames, `pixels` uint8 [T, Y, X, 3], unless `draw_every` is 0.

    Frames are drawn one episode at a time, when it is asked for.
    """
    renderer = two_room.TwoRoomRenderer(image_size, device)
    for episode in simulate_episodes(seed, episode_indices, max_steps=max_steps, device=device):
        if draw_every:
            positions = torch.from_numpy(episode["proprio"][::draw_every])
            episode = {"pixels": renderer(positions).cpu().numpy(), **episode}
        yield episode


def _simulate_batch(
    seed: int, indices: list[int], max_steps: int, device: torch.device
) -> Iterator[dict[str, np.ndarray]]:
    streams = [episode_stream(seed, index) for index in indices]
    sampled = np.array([two_room.sample_start_and_target(stream) for stream in streams])
    drawn = np.array([stream.standard_normal((max_steps, 2), dtype=np.float32) for stream in streams])
    position, target = torch.from_numpy(sampled).to(device).unbind(1)
    noise = torch.from_numpy(drawn).to(device)

    # Episodes that are over keep walking unrecorded: cheaper than regrouping, and not stored.
    positions, actions = [position], []
    for step in range(max_steps):
        actions.append(noisy_heuristic(position, target, noise[:, step]))
        position = two_room.move(position, actions[-1])
        positions.append(position)
    path = torch.stack(positions, 1)
    columns = two_room.recorded_columns(path, target[:, None].expand_as(path))
    recorded = {name: values.cpu().numpy() for name, values in columns.items()}
    taken = torch.stack(actions, 1).cpu().numpy()

    reached = recorded["distance_to_target"][:, 1:] < two_room.SUCCESS_DISTANCE
    for row, is_reached in enumerate(reached):
        steps = int(is_reached.argmax()) + 1 if is_reached.any() else max_steps
        last = np.arange(steps + 1) == steps
        yield {
            "action": np.concatenate((taken[row, :steps], np.full((1, 2), np.nan, np.float32))),
            **{name: values[row, : steps + 1].copy() for name, values in recorded.items()},
            "reward": np.concatenate((np.full(1, np.nan, np.float32), np.zeros(steps, np.float32))),
            "terminated": last & is_reached.any(),
            "truncated": last & ~is_reached.any(),
            "step_idx": np.arange(steps + 1, dtype=np.int64),
        }
