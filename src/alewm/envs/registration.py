"""The tasks by name, and their Gymnasium ids.

A `Task` is what collection and evaluation need to know of an environment. Adding one here adds its contract tests
(`tests/envs/test_env_contract.py`), its Gymnasium id and its name on the command line.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import gymnasium
import numpy as np
import torch

from alewm.envs.contract import GoalEnv, VectorGoalEnv
from alewm.envs.resampling import checked_image_size
from alewm.envs.two_room import behaviour as two_room_behaviour
from alewm.envs.two_room.env import TwoRoomEnv, TwoRoomVectorEnv
from alewm.errors import unknown_name


@runtime_checkable
class CollectEpisodes(Protocol):
    """Finished episodes as columns with frames, each a function of (seed, episode index) alone."""

    def __call__(
        self,
        seed: int,
        episode_indices: Iterable[int],
        *,
        image_size: int = ...,
        device: torch.device | str = ...,
    ) -> Iterator[dict[str, np.ndarray]]:
        """One dictionary of columns per episode, in the order asked for."""
        ...


@dataclass(frozen=True)
class Task:
    """A goal environment with the behaviour that its data are collected with."""

    name: str
    """What the task is called on the command line and in configs."""
    env_id: str
    """Its Gymnasium id."""
    env_class: type[GoalEnv]
    """The Gymnasium environment; its docstring is the task's page."""
    vector_env_class: type[VectorGoalEnv]
    """The batched form."""
    image_size: int
    """Pixels per side of the images it draws natively."""
    max_episode_steps: int
    """Environment steps after which a collected episode is cut."""
    collect_episodes: CollectEpisodes
    """(seed, episode indices) to finished episodes, one dictionary of columns each."""

    @property
    def action_dim(self) -> int:
        """Numbers per action."""
        return self.vector_env_class.action_dim

    @property
    def state_columns(self) -> tuple[str, ...]:
        """The columns of a data file from which a start and a goal are loaded."""
        return tuple(self.vector_env_class.state_shapes)

    def episode_source(self, image_size: int | None = None) -> Callable[..., Iterator[dict[str, np.ndarray]]]:
        """(seed, episode indices) to finished episodes with frames of `image_size` (by default the native one)."""
        size = checked_image_size(self.image_size if image_size is None else image_size, self.image_size)
        return partial(self.collect_episodes, image_size=size)

    def make_vector_env(
        self, num_envs: int, device: torch.device | str = "cpu", image_size: int | None = None
    ) -> VectorGoalEnv:
        """A batch of `num_envs` episodes on `device`, drawing at `image_size` (by default the native one)."""
        size = self.image_size if image_size is None else image_size
        return self.vector_env_class(num_envs, device=device, image_size=size)


_TASKS = {
    task.name: task
    for task in (
        Task(
            name="two-room",
            env_id="alewm/TwoRoom-v1",
            env_class=TwoRoomEnv,
            vector_env_class=TwoRoomVectorEnv,
            image_size=224,
            max_episode_steps=two_room_behaviour.MAX_STEPS,
            collect_episodes=two_room_behaviour.collect_episodes,
        ),
    )
}


def task_names() -> tuple[str, ...]:
    """The names of all tasks, sorted."""
    return tuple(sorted(_TASKS))


def get_task(name: str) -> Task:
    """The task called `name`; an unknown name is refused, proposing the nearest."""
    if name not in _TASKS:
        raise unknown_name("task", name, _TASKS)
    return _TASKS[name]


def register_envs() -> None:
    """Make every task available to `gymnasium.make`; repeating it changes nothing."""
    for task in _TASKS.values():
        if task.env_id not in gymnasium.registry:
            # By name rather than by class, so that the registered specification can be printed and saved.
            home = f"{task.env_class.__module__}:{task.env_class.__name__}"
            gymnasium.register(task.env_id, entry_point=home, max_episode_steps=task.max_episode_steps)


register_envs()
