"""What collection and evaluation need to know of an environment."""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch

from alewm.envs.contract import GoalEnv, VectorGoalEnv
from alewm.envs.resampling import checked_image_size
from alewm.envs.statistics import TaskStatistics
from alewm.envs.visible import Visible
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


@runtime_checkable
class EpisodeCopies(CollectEpisodes, Protocol):
    """Episodes that are copies of demonstrations, so many and no more."""

    @property
    def num_episodes(self) -> int:
        """All copies of all demonstrations."""
        ...


@runtime_checkable
class CopyDemonstrations(Protocol):
    """Makes an episode source of a file of demonstrations."""

    def __call__(
        self, path: Path, *, copies: int = ..., noise: float = ..., held_out: bool = ...
    ) -> tuple[EpisodeCopies, dict[str, Any]]:
        """Noisy copies of the demonstrations in `path`, and what a data file made of them says of itself.

        `held_out` takes those that the published training file leaves out.
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
    demonstrations_home: str | None = None
    """`module:function` of a `CopyDemonstrations`, where its data can be made from demonstrations that people gave."""
    where_demonstrations: str = ""
    """Where people get that file."""
    demonstrations_note: str = ""
    """What to say beside every number about data made from it."""
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

    @property
    def copy_demonstrations(self) -> CopyDemonstrations:
        """What makes data of a file of demonstrations; refused for tasks that have none."""
        if self.demonstrations_home is None:
            raise InputError(f"There are no public demonstrations of {self.name!r}: leave out --demonstrations.")
        return cast("CopyDemonstrations", self._load(self.demonstrations_home))

    def note_on(self, made_with: str | None) -> str:
        """What to say beside every number about data that this `alewm collect` command made; of other data nothing."""
        if made_with is None:
            return ""
        return self.demonstrations_note if " --demonstrations " in made_with else self.data_note

    def make_statistics(self) -> TaskStatistics | None:
        """A new collector of the task's own figures, if it has one."""
        return None if self.statistics_home is None else cast("TaskStatistics", self._load(self.statistics_home)())

    @property
    def state_columns(self) -> tuple[str, ...]:
        """The columns of a data file from which a start and a goal are loaded."""
        return tuple(self.vector_env_class.state_shapes)

    def episode_source(
        self,
        image_size: int | None = None,
        behaviour: str | None = None,
        draw_every: int = 1,
        copied: CollectEpisodes | None = None,
    ) -> Callable[..., Iterator[dict[str, np.ndarray]]]:
        """(seed, episode indices) to finished episodes, by default of the native size and the default behaviour.

        With `copied` demonstrations, to theirs.
        """
        size = checked_image_size(self.image_size if image_size is None else image_size, self.image_size)
        acting = copied or self.collect_with(behaviour or self.default_behaviour)
        return partial(acting, image_size=size, draw_every=draw_every)

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
