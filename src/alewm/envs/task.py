"""What collection, evaluation and probes need to know of an environment."""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from alewm.envs.contract import GoalEnv, VectorGoalEnv
from alewm.envs.recording import CollectEpisodes, CopyDemonstrations
from alewm.envs.simulated import Drawing, DrawingChoice
from alewm.errors import InputError, install_line, unknown_name
from alewm.resize import check_image_size
from alewm.shapes import Float


@dataclass(frozen=True)
class Visible:
    """A number of the true state that can be read off a single frame."""

    column: str
    """The column of a data file that has it."""
    index: int = 0
    """Its place within a row of that column."""
    alike_per_turn: int = 0
    """0 for a length; of an angle, how many times what it turns looks the same in a full turn. It is read as sine and
    cosine of that multiple, which have no jump and no two values for one picture."""

    @property
    def names(self) -> tuple[str, ...]:
        """What its readings are called."""
        label = f"{self.column}[{self.index}]"
        if not self.alike_per_turn:
            return (label,)
        multiple = "" if self.alike_per_turn == 1 else f"{self.alike_per_turn} "
        return f"cos {multiple}{label}", f"sin {multiple}{label}"

    def read(self, column: np.ndarray) -> tuple[Float[np.ndarray, " rows"], ...]:
        """Its readings, one per name, from the rows of its column."""
        values = np.asarray(column, dtype=np.float64).reshape(len(column), -1)[:, self.index]
        if not self.alike_per_turn:
            return (values,)
        turned = self.alike_per_turn * values
        return np.cos(turned), np.sin(turned)


def all_of(column: str, indices: Iterable[int], alike_per_turn: int = 0) -> tuple[Visible, ...]:
    """The numbers at `indices` of one column."""
    return tuple(Visible(column, index, alike_per_turn) for index in indices)


def readings(visible: Iterable[Visible], columns: Mapping[str, np.ndarray]) -> dict[str, Float[np.ndarray, " rows"]]:
    """All readings by name."""
    return {
        name: values
        for each in visible
        for name, values in zip(each.names, each.read(columns[each.column]), strict=True)
    }


_APART = ("dm_control", "ogbench")
"""What the extra `mujoco` does not bring on Python 3.13 (docs/install.md)."""


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
    """The parts of the true state that one frame shows."""
    env_id: str | None = None
    """Its Gymnasium id, if it has one."""
    env_home: str | None = None
    """`module:class` of the Gymnasium environment, whose docstring is the task's page."""
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
    has_renderers: bool = False
    """Whether its frames can be drawn by MuJoCo or in batches (`alewm.envs.simulated`)."""
    drawing_is_slow: bool = False
    """Whether a frame takes tens of milliseconds or more where no graphics card draws it."""

    @property
    def env_class(self) -> type[GoalEnv]:
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

    @property
    def action_limits(self) -> tuple[float, float] | None:
        """The lowest and the highest number of an action, where the environment clamps it; None where it does not."""
        return (-1.0, 1.0) if self.vector_env_class.clamps_actions else None

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
        drawing: Drawing | None = None,
    ) -> Callable[..., Iterator[dict[str, np.ndarray]]]:
        """(seed, episode indices) to finished episodes, by default of the native size and the default behaviour.

        With `copied` demonstrations, to theirs. `drawing` is for tasks that have a choice of renderers.
        """
        size = self.image_size if image_size is None else image_size
        check_image_size(size, self.image_size, self.image_size)
        acting = copied or self.collect_with(behaviour or self.default_behaviour)
        chosen: dict[str, Any] = {"drawing": drawing} if self.has_renderers and drawing is not None else {}
        return partial(acting, image_size=size, draw_every=draw_every, **chosen)

    def make_vector_env(
        self,
        num_envs: int,
        device: torch.device | str = "cpu",
        image_size: int | None = None,
        drawing: Drawing | None = None,
    ) -> VectorGoalEnv:
        """A batch of `num_envs` episodes on `device`, drawn at `image_size` (by default the native one).

        `drawing` says by whom, where the task has a choice; None is MuJoCo.
        """
        size = self.image_size if image_size is None else image_size
        chosen = {"drawing": drawing} if self.has_renderers and drawing is not None else {}
        return self.vector_env_class(num_envs, device=device, image_size=size, **chosen)

    def resolve_drawing(self, choice: DrawingChoice, shadow_size: int = 0) -> Drawing:
        """What `choice` means on this machine, for a task with a choice of renderers."""
        from alewm.envs.batched_drawing import MujocoSimulator, resolve_drawing

        simulator = getattr(self.vector_env_class, "simulator_class", None)
        if simulator is None or not issubclass(simulator, MujocoSimulator):
            raise InputError(f"The task {self.name!r} is not simulated by MuJoCo: it has no choice of renderers.")
        return resolve_drawing(choice, shadow_size, simulator.camera(shadow_size))

    def _load(self, home: str) -> Any:
        module, _, name = home.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if self.extra is None or missing == "alewm":
                raise
            install = install_line(self.extra)
            if missing in _APART and sys.version_info >= (3, 13):
                install += f" Then: pip install --no-deps {' '.join(_APART)}"
            raise InputError(
                f"The task {self.name!r} needs the package {missing!r}, which is not installed. {install}"
            ) from error
