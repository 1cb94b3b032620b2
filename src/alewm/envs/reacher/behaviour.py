"""How Reacher data are made: uniform random torques, independent at every step, for 200 steps.

Every episode has its own random stream, keyed by (seed, episode index). It yields, in this order, the start, the hidden
target and all actions, so that an episode's bytes depend on nothing else.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from alewm.envs.drawing import Drawing
from alewm.envs.reacher import physics
from alewm.envs.recording import Film, episode_stream, full_length_episode

MAX_STEPS = 200
"""Environment steps of every episode; it has a row more."""

_TARGET_RADIUS = (0.05, 0.20)
_REWARD_DISTANCE = physics.TARGET_RADIUS + 0.01  # the finger has a radius too
_SCORE_SCALE = 1000.0


def sample_start(generator: np.random.Generator) -> dict[str, np.ndarray]:
    """A row at rest: the shoulder anywhere in (-π, π), the wrist anywhere within its limits."""
    shoulder = generator.uniform(-np.pi, np.pi)
    wrist = generator.uniform(-physics.WRIST_LIMIT, physics.WRIST_LIMIT)
    return {"qpos": np.array([shoulder, wrist]), "qvel": np.zeros(2)}


def sample_target(generator: np.random.Generator) -> np.ndarray:
    """(x, y) of a hidden target: its radius uniform from 5 to 20 cm, its angle uniform."""
    angle, radius = generator.uniform(0, 2 * np.pi), generator.uniform(*_TARGET_RADIUS)
    return radius * np.array([np.sin(angle), np.cos(angle)])


def collect_episodes(
    seed: int,
    episode_indices: Iterable[int],
    *,
    image_size: int = physics.IMAGE_SIZE,
    max_steps: int = MAX_STEPS,
    draw_every: int = 1,
    device: torch.device | str = "cpu",
    drawing: Drawing = Drawing(),  # noqa: B008 (frozen)
) -> Iterator[dict[str, np.ndarray]]:
    """Finished episodes in the order asked for, with `pixels` uint8 [T, Y, X, 3] unless `draw_every` is 0.

    `qpos`, `qvel`, `observation` (qpos, from finger to target, qvel), `target_pos` and `finger_pos` describe the state,
    `reward` counts the physics steps of a row in which the finger touched the hidden target, `score` is their sum so
    far by 1000, and `success` is NaN, as there is no goal.
    """
    for index in episode_indices:
        film = Film(image_size, device, draw_every, physics.ReacherSimulator.painter(drawing)) if draw_every else None
        columns = _episode(seed, index, max_steps, film)
        yield columns if film is None else {"pixels": film.pixels(), **columns}


def _episode(seed: int, index: int, max_steps: int, film: Film | None) -> dict[str, np.ndarray]:
    stream = episode_stream(seed, index)
    start, target = sample_start(stream), sample_target(stream)
    actions = stream.uniform(-1, 1, (max_steps, 2)).astype(np.float32)
    arm = physics.ReacherSimulator()
    arm.load(start)
    rows, rewards = [arm.recorded(target)], []
    if film is not None:
        film.shoot(arm)
    for action in actions:
        touches = 0
        for _ in range(physics.ACTION_REPEAT):
            arm.substep(action)
            touches += bool(np.linalg.norm(target - arm.finger()) <= _REWARD_DISTANCE)
        rows.append(arm.recorded(target))
        rewards.append(float(touches))
        if film is not None:
            film.shoot(arm)
    columns = full_length_episode(rows, list(actions), rewards)
    score = np.concatenate(([0.0], np.cumsum(rewards))) / _SCORE_SCALE
    return {**columns, "score": score, "success": np.full(len(rows), np.nan)}
