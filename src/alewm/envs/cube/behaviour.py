"""How Cube data are made: OGBench's plan oracle picks the cube up and puts it down, with smoothed noise, for 200 steps.

A plan lasts about 88 steps. When one is finished, `one-goal` plans again for the target that the episode began with, as
the published data do, so the cube is picked up and put down where it is; `new-goals` draws another target first, as
OGBench itself does.

Every episode has its own random stream, keyed by (seed, episode index). It yields, in this order, the start, the first
target, the seed of the oracle's own numbers, and later targets, so that an episode's bytes depend on nothing else.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch

from alewm.envs.cube import physics
from alewm.envs.cube.physics import SUCCESS_DISTANCE, CubeSimulator
from alewm.envs.drawing import Drawing
from alewm.envs.recording import Film, episode_stream, full_length_episode

from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle  # isort: skip (after the choice of a back end)

MAX_STEPS = 200
"""Environment steps of every episode; it has a row more."""

NOISE, NOISE_SMOOTHING = 0.1, 0.5
"""Standard deviation of the plan's noise in units of the action's range, and that of its smoothing in steps."""


def sample_start(generator: np.random.Generator) -> dict[str, np.ndarray]:
    """A row at rest: the gripper at its start with any yaw, the cube on the floor, anywhere in its area, any yaw."""
    row = CubeSimulator.resting_row()
    row["qpos"][:6] = physics.scene().arm_at_start(generator.uniform(-np.pi, np.pi))
    row["qpos"][physics.CUBE_POSITION], row["qpos"][physics.CUBE_QUATERNION] = sample_pose(generator)
    return row


def sample_pose(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Position and quaternion of a cube on the floor."""
    position = np.array([*generator.uniform(*physics.CUBE_AREA), physics.CUBE_HEIGHT])
    return position, physics.turned(generator.uniform(0, 2 * np.pi))


def _collect_episodes(
    seed: int,
    episode_indices: Iterable[int],
    *,
    image_size: int = physics.IMAGE_SIZE,
    max_steps: int = MAX_STEPS,
    draw_every: int = 1,
    device: torch.device | str = "cpu",
    drawing: Drawing = Drawing(),  # noqa: B008 (frozen)
    new_goals: bool,
) -> Iterator[dict[str, np.ndarray]]:
    """Finished episodes in the order asked for, with `pixels` uint8 [T, Y, X, 3] unless `draw_every` is 0.

    The columns are OGBench's (`CubeSimulator.recorded`); `success` says whether the cube is at the target of that
    row, `reward` is 1 there and 0 elsewhere.
    """
    for index in episode_indices:
        film = Film(image_size, device, draw_every, CubeSimulator.painter(drawing)) if draw_every else None
        columns = _episode(seed, index, new_goals, max_steps, film)
        yield columns if film is None else {"pixels": film.pixels(), **columns}


collect_one_goal = partial(_collect_episodes, new_goals=False)
"""Episodes with one target each, as published."""

collect_new_goals = partial(_collect_episodes, new_goals=True)
"""Episodes with a new target whenever a plan is finished, as OGBench collects."""


def _episode(seed: int, index: int, new_goals: bool, max_steps: int, film: Film | None) -> dict[str, np.ndarray]:
    stream = episode_stream(seed, index)
    world = CubeSimulator()
    world.load(sample_start(stream))
    target = sample_pose(stream)
    numbers = np.random.RandomState(stream.integers(2**32, size=8))
    oracle = CubePlanOracle(physics.scene(), noise=NOISE, noise_smoothing=NOISE_SMOOTHING)

    def plan() -> None:
        with global_numbers(numbers):
            oracle.reset(None, world.known_to_oracle(*target))

    rows, actions, is_reached = [world.recorded(*target)], [], [False]
    if film is not None:
        film.shoot(world)
    plan()
    for _ in range(max_steps):
        # Rounded as it is stored, so that the recorded action repeats what happened.
        action = oracle.select_action(None, world.known_to_oracle(*target)).astype(np.float32)
        world.advance(action, None)
        rows.append(world.recorded(*target))
        if film is not None:
            film.shoot(world)
        actions.append(action)
        is_reached.append(world.cube_distance(target[0]) <= SUCCESS_DISTANCE)
        if oracle.done:
            target = sample_pose(stream) if new_goals else target
            plan()
    columns = full_length_episode(rows, actions, [float(reached) for reached in is_reached[1:]])
    return {**columns, "success": np.array(is_reached)}


@contextmanager
def global_numbers(source: np.random.RandomState) -> Iterator[None]:
    """Let what draws from NumPy's global generator, as OGBench's oracles do, draw from `source` instead."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.set_state(source.get_state())  # noqa: NPY002
    try:
        yield
    finally:
        source.set_state(np.random.get_state())  # noqa: NPY002
        np.random.set_state(before)  # noqa: NPY002
