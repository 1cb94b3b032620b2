"""The tasks by name, and their Gymnasium ids.

A `Task` is what collection and evaluation need to know of an environment. Adding one here adds its contract tests
(`tests/envs/test_env_contract.py`), its Gymnasium id and its name on the command line. Simulators are imported when a
task is used, not when its name is listed: their packages are optional. Other packages enter theirs
(`alewm.envs.entered`); a name of ours stays ours.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import gymnasium
import numpy as np
import torch

from alewm.envs.contract import GoalEnv, VectorGoalEnv
from alewm.envs.entered import entered_tasks
from alewm.envs.resampling import checked_image_size
from alewm.envs.statistics import TaskStatistics
from alewm.envs.visible import Visible, all_of
from alewm.errors import InputError, unknown_name

_APART = ("dm_control", "ogbench")
"""What the extra `mujoco` does not bring on Python 3.13 (docs/install.md)."""


@runtime_checkable
class CollectEpisodes(Protocol):
    """Finished episodes as columns with frames, each a function of (seed, episode index) alone."""

    def __call__(
        self,
        seed: int,
        episode_indices: Iterable[int],
        *,
        image_size: int = ...,
        max_steps: int = ...,
        draw_every: int = ...,
        device: torch.device | str = ...,
    ) -> Iterator[dict[str, np.ndarray]]:
        """One dictionary of columns per episode, in the order asked for.

        `max_steps` cuts episodes early, without changing what comes before the cut. `pixels` has the frames of every
        `draw_every`-th row, the first row's before all; with 0 there is no such column. The others are the same.
        """
        ...


@dataclass(frozen=True)
class Task:
    """A goal environment with the behaviour that its data are collected with."""

    name: str
    """What the task is called on the command line and in configs."""
    vector_env_home: str
    """`module:class` of its environment, a `VectorGoalEnv`."""
    action_dim: int
    """Numbers per action."""
    image_size: int
    """Pixels per side of the images it draws natively."""
    behaviours: Mapping[str, str] = field(default_factory=dict)
    """What its data can be collected with, the default first: names to `module:function` of a `CollectEpisodes`. None
    where data come from elsewhere."""
    max_episode_steps: int = 200
    """Environment steps after which a collected episode is cut."""
    visible: tuple[Visible, ...] = ()
    """What one frame shows of its true state."""
    env_id: str | None = None
    """Its Gymnasium id, if it has one."""
    env_home: str | None = None
    """`module:class` of the Gymnasium environment, whose docstring is the task's page."""
    statistics_home: str | None = None
    """`module:class` of the `TaskStatistics` that says what its data are like."""
    data_note: str = ""
    """What to say beside every number about data that `alewm collect` recorded of it, where they are not those that
    published numbers are about."""
    extra: str | None = None
    """The extra of this package that installs its simulator, if it needs one."""
    drawing_is_slow: bool = False
    """Whether a frame takes tens of milliseconds or more where no graphics card draws it."""

    @property
    def env_class(self) -> type[GoalEnv]:
        """The Gymnasium environment."""
        if self.env_home is None:
            raise InputError(f"The task {self.name!r} has no Gymnasium environment.")
        return cast("type[GoalEnv]", self._load(self.env_home))

    @property
    def vector_env_class(self) -> type[VectorGoalEnv]:
        """The batched form."""
        return cast("type[VectorGoalEnv]", self._load(self.vector_env_home))

    @property
    def default_behaviour(self) -> str:
        """The name of the behaviour that collects unless another is asked for."""
        if not self.behaviours:
            raise InputError(f"The task {self.name!r} comes without anything that records data: see docs/data.md.")
        return next(iter(self.behaviours))

    @property
    def collect_episodes(self) -> CollectEpisodes:
        """(seed, episode indices) to finished episodes of the default behaviour."""
        return self.collect_with(self.default_behaviour)

    def collect_with(self, behaviour: str) -> CollectEpisodes:
        """(seed, episode indices) to finished episodes of `behaviour`; an unknown name is refused."""
        if behaviour not in self.behaviours:
            raise unknown_name(f"behaviour of {self.name}", behaviour, self.behaviours)
        return cast("CollectEpisodes", self._load(self.behaviours[behaviour]))

    def make_statistics(self) -> TaskStatistics | None:
        """A new collector of the task's own figures, if it has one."""
        return None if self.statistics_home is None else cast("TaskStatistics", self._load(self.statistics_home)())

    @property
    def state_columns(self) -> tuple[str, ...]:
        """The columns of a data file from which a start and a goal are loaded."""
        return tuple(self.vector_env_class.state_shapes)

    def episode_source(
        self, image_size: int | None = None, behaviour: str | None = None, draw_every: int = 1
    ) -> Callable[..., Iterator[dict[str, np.ndarray]]]:
        """(seed, episode indices) to finished episodes, by default of the native size and the default behaviour."""
        size = checked_image_size(self.image_size if image_size is None else image_size, self.image_size)
        return partial(self.collect_with(behaviour or self.default_behaviour), image_size=size, draw_every=draw_every)

    def make_vector_env(
        self, num_envs: int, device: torch.device | str = "cpu", image_size: int | None = None
    ) -> VectorGoalEnv:
        """A batch of `num_envs` episodes on `device`, drawing at `image_size` (by default the native one)."""
        size = self.image_size if image_size is None else image_size
        return self.vector_env_class(num_envs, device=device, image_size=size)

    def _load(self, home: str) -> Any:
        module, _, name = home.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if self.extra is None or missing == "alewm":
                raise
            install = f"pip install 'alewm[{self.extra}]'"
            if missing in _APART and sys.version_info >= (3, 13):
                install += f" && pip install --no-deps {' '.join(_APART)}"
            raise InputError(
                f"The task {self.name!r} needs the package {missing!r}, which is not installed. "
                f"Install the extra: {install}"
            ) from error


_TASKS = {
    task.name: task
    for task in (
        Task(
            name="two-room",
            env_id="alewm/TwoRoom-v1",
            env_home="alewm.envs.two_room.env:TwoRoomEnv",
            vector_env_home="alewm.envs.two_room.env:TwoRoomVectorEnv",
            behaviours={"noisy-heuristic": "alewm.envs.two_room.behaviour:collect_episodes"},
            statistics_home="alewm.envs.two_room.statistics:TwoRoomStatistics",
            action_dim=2,
            image_size=224,
            max_episode_steps=100,
            visible=all_of("proprio", range(2)),
        ),
        Task(
            name="cube",
            env_id="alewm/Cube-v1",
            env_home="alewm.envs.cube.env:CubeEnv",
            vector_env_home="alewm.envs.cube.env:CubeVectorEnv",
            behaviours={
                "one-goal": "alewm.envs.cube.behaviour:collect_one_goal",
                "new-goals": "alewm.envs.cube.behaviour:collect_new_goals",
            },
            statistics_home="alewm.envs.cube.statistics:CubeStatistics",
            action_dim=5,
            image_size=224,
            max_episode_steps=200,
            visible=(
                # The arm up to the wrist, the hand's turn, the first of eight joints that open together, the cube.
                *all_of("qpos", range(4)),
                Visible("proprio_effector_yaw", alike_per_turn=2),
                Visible("qpos", 6),
                *all_of("qpos", range(14, 17)),
                Visible("privileged_block_0_yaw", alike_per_turn=4),
            ),
            extra="mujoco",
            drawing_is_slow=True,
        ),
        Task(
            name="push-t",
            env_id="alewm/PushT-v1",
            env_home="alewm.envs.push_t.env:PushTEnv",
            vector_env_home="alewm.envs.push_t.env:PushTVectorEnv",
            behaviours={
                "expert": "alewm.envs.push_t.behaviour:collect_episodes",
                "expert-101": "alewm.envs.push_t.behaviour:collect_episodes_of_101_replays",
                "weak": "alewm.envs.push_t.weak:collect_episodes",
            },
            statistics_home="alewm.envs.push_t.statistics:PushTStatistics",
            data_note=(
                "Data of our own expert, not the published demonstrations: not comparable with published figures."
            ),
            action_dim=2,
            image_size=224,
            max_episode_steps=200,
            visible=(*all_of("state", range(4)), Visible("state", 4, alike_per_turn=1)),
            extra="push-t",
        ),
        Task(
            name="reacher",
            env_id="alewm/Reacher-v1",
            env_home="alewm.envs.reacher.env:ReacherEnv",
            vector_env_home="alewm.envs.reacher.env:ReacherVectorEnv",
            behaviours={"uniform-random": "alewm.envs.reacher.behaviour:collect_episodes"},
            statistics_home="alewm.envs.reacher.statistics:ReacherStatistics",
            action_dim=2,
            image_size=224,
            max_episode_steps=200,
            visible=all_of("qpos", range(2), alike_per_turn=1),
            extra="mujoco",
            drawing_is_slow=True,
        ),
    )
}


OUR_TASKS = tuple(sorted(_TASKS))
"""The names of the tasks that come with this package."""


def task_names() -> tuple[str, ...]:
    """The names of all tasks, also of other packages, sorted."""
    return tuple(sorted({*_TASKS, *entered_tasks()}))


def get_task(name: str) -> Task:
    """The task called `name`; an unknown name is refused, proposing the nearest."""
    if name in _TASKS:
        return _TASKS[name]
    if name in entered_tasks():
        return _load_entered(name)
    raise unknown_name("task", name, task_names())


def _load_entered(name: str) -> Task:
    entry = entered_tasks()[name]
    origin = f"entered as {entry.value!r} by {entry.dist.name if entry.dist else 'an unnamed package'}"
    try:
        task = entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"The task {name!r}, {origin}, cannot be loaded: {error}") from error
    if not isinstance(task, Task) or task.name != name:
        raise InputError(f"The task {name!r}, {origin}, must be a Task of that name, found {task!r}.")
    return task


def register_envs() -> None:
    """Make every task of ours available to `gymnasium.make`; repeating it changes nothing."""
    for task in _TASKS.values():
        if task.env_id is not None and task.env_id not in gymnasium.registry:
            # By name rather than by class: the specification can be printed and saved, and nothing is imported yet.
            gymnasium.register(task.env_id, entry_point=task.env_home, max_episode_steps=task.max_episode_steps)


register_envs()
