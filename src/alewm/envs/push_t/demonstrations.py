"""Nominal demonstrations: the expert at work from a random start, for as long as an episode lasts."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from alewm.envs.push_t.expert import Expert, ExpertConfig
from alewm.envs.push_t.physics import PushTWorld
from alewm.envs.push_t.poses import Pose, is_reached, sample_pose
from alewm.envs.push_t.simulator import PUSHER_HIGH, PUSHER_LOW, is_free
from alewm.errors import InputError
from alewm.shapes import Float

SHORTEST, LONGEST = 100, 150
"""Environment steps of a demonstration, drawn uniformly; both included."""

START_SPREAD, POSE_SPREAD = 80.0, 65.0
"""How far from the arena's centre, on each axis, the block's centre of gravity starts and is to be brought."""

DEFAULT_CONFIG = ExpertConfig()
_SATISFIED = 0.5  # share of the tolerances within which the expert leaves a pose for the next


@dataclass(frozen=True)
class Demonstration:
    """What the expert did, and for which poses."""

    start: Float[np.ndarray, "7"]
    """The state it began in."""
    actions: Float[np.ndarray, "steps 2"]
    """float32, as recorded and as executed."""
    pusher: Float[np.ndarray, "rows 2"]
    """Where the pusher was at every row."""
    goal_poses: Float[np.ndarray, "rows 3"]
    """The pose that was being pursued at every row: x, y, angle of the block's origin."""
    poses_pursued: int
    """How many poses the expert was given: the first, and another after each that it brought the block close to."""
    first_reached: int | None
    """Steps until the block was within 20 pixels and 20 degrees of its first pose, if it ever was."""


def stream(seed: int, *key: int) -> np.random.Generator:
    """An independent random stream for each (seed, key)."""
    if seed < 0 or min(key) < 0:
        raise InputError(f"Seeds and episode indices are not negative, got {seed} and {key[-1]}.")
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))


def sample_start(generator: np.random.Generator) -> Float[np.ndarray, "7"]:
    """A state at rest with the block near the centre and the pusher anywhere off it."""
    while True:
        pose = sample_pose(generator, START_SPREAD)
        pusher = generator.uniform(PUSHER_LOW, PUSHER_HIGH, 2)
        if is_free(pusher, np.array(pose[:2]), pose.angle):
            return np.array([*pusher, *pose, 0.0, 0.0])


@lru_cache(maxsize=4)
def demonstrate(seed: int, index: int, config: ExpertConfig = DEFAULT_CONFIG) -> Demonstration:
    """Demonstration number `index` under `seed`, a function of these alone.

    The last few are remembered, because an episode and its neighbours replay the same one.
    """
    generator = stream(seed, 0, index)
    start, num_steps = sample_start(generator), int(generator.integers(SHORTEST, LONGEST + 1))
    expert, world = Expert(config, generator), PushTWorld(start)
    goal = sample_pose(generator, POSE_SPREAD)
    actions, pusher, goals = [], [start[:2]], [goal]
    poses_pursued, first_reached = 1, None
    for step in range(1, num_steps + 1):
        state = world.state()
        if is_reached(Pose.of(state), goal, _SATISFIED):
            goal, poses_pursued = sample_pose(generator, POSE_SPREAD), poses_pursued + 1
            expert.forget_plan()
        actions.append(expert.act(state, goal).astype(np.float32))
        world.step(*actions[-1].astype(np.float64))
        if poses_pursued == 1 and first_reached is None and is_reached(Pose.of(world.state()), goal):
            first_reached = step
        pusher.append(world.state()[:2])
        goals.append(goal)
    return Demonstration(
        _frozen(start), _frozen(actions), _frozen(pusher), _frozen(goals), poses_pursued, first_reached
    )


def _frozen(values: object) -> np.ndarray:
    array = np.array(values)
    array.flags.writeable = False
    return array
