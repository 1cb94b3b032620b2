"""Simulated tasks: what a physics engine offers (`Simulator`), a batch of its episodes, and who draws their frames.

Physics engines step a single world. Evaluation steps its worlds in a loop, which is enough where a step costs
microseconds; where it costs a millisecond (Cube) the engine uses a thread per core. Collection runs a process per core.

Frames are drawn by MuJoCo, or by our rasteriser in batches. A data file says which, and how fine the shadow map was,
in two attributes. The checkpoint of a model repeats them, so that evaluation draws what the model was trained on.
Files and models that say nothing were drawn by MuJoCo with its model's own shadow map.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch

from alewm.data import schema
from alewm.envs.contract import VectorGoalEnv
from alewm.errors import InputError
from alewm.resize import area_downsample, check_image_size
from alewm.shapes import Bool, Float, Tensor, UInt8

Renderer = Literal["mujoco", "batched"]
DrawingChoice = Literal["auto", "mujoco", "batched"]
"""What a person can ask for; auto is batched where that works."""


@dataclass(frozen=True)
class Drawing:
    """How frames are drawn."""

    renderer: Renderer = "mujoco"
    shadow_size: int = 0
    """Texels per side of the shadow map; 0 for the model's own."""

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> "Drawing":
        """What the attributes of a file, or a checkpoint's words about its data, say; nonsense is refused."""
        renderer = attributes.get(schema.DRAWING, "mujoco")
        shadow_size = attributes.get(schema.SHADOW_SIZE, 0)
        if renderer not in get_args(Renderer) or not isinstance(shadow_size, int) or shadow_size < 0:
            raise InputError(
                f"Frames are drawn by {' or '.join(get_args(Renderer))} with a shadow map of so many texels per side; "
                f"the data say {renderer!r} and {shadow_size!r}."
            )
        return cls(renderer, shadow_size)

    def attributes(self) -> dict[str, Any]:
        """What a file says of it."""
        size = {schema.SHADOW_SIZE: self.shadow_size} if self.shadow_size else {}
        return {schema.DRAWING: self.renderer, **size}


class Painter(ABC):
    """Draws worlds of one simulator: looks at each when it is in the right state, and draws all of them later."""

    @abstractmethod
    def look(self, world: Any) -> np.ndarray:
        """What is needed of `world` as it is now."""

    @abstractmethod
    def paint(self, looks: Sequence[np.ndarray]) -> UInt8[Tensor, "F Y X 3"]:
        """A frame of native size for each look."""


class EachByItself(Painter):
    """Draws each world by itself, as soon as it is looked at."""

    def __init__(self, draw: Callable[[Any], UInt8[np.ndarray, "Y X 3"]]) -> None:
        self._draw = draw

    def look(self, world: Any) -> UInt8[np.ndarray, "Y X 3"]:
        """Its frame."""
        return self._draw(world)

    def paint(self, looks: Sequence[np.ndarray]) -> UInt8[Tensor, "F Y X 3"]:
        """The frames together."""
        return torch.from_numpy(np.stack(looks))


Columns = dict[str, np.ndarray]
"""Columns of one row."""


class Simulator(ABC):
    """One episode of a physics engine, in NumPy and float64.

    The simulated world has no goal: `distance` and `columns` take it as an argument, so that one world serves any goal.
    """

    def __init__(self) -> None:
        self.load(self.resting_row())

    @staticmethod
    @abstractmethod
    def resting_row() -> Columns:
        """A valid initial state."""

    @abstractmethod
    def load(self, row: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `row` describes, as loading a row of a data file does."""

    @abstractmethod
    def state(self) -> Columns:
        """The columns `load` would need to come back here."""

    @abstractmethod
    def columns(self, goal: Mapping[str, np.ndarray]) -> Columns:
        """What a data file records of the present state, besides pixels and actions."""

    @abstractmethod
    def advance(self, action: np.ndarray, goal: Mapping[str, np.ndarray] | None) -> None:
        """One environment step; an engine that stops inside a step on success looks at `goal`, if one was set."""

    @classmethod
    def advance_all(
        cls,
        worlds: Sequence[Any],
        actions: Sequence[np.ndarray],
        goals: Sequence[Mapping[str, np.ndarray] | None],
    ) -> None:
        """One environment step of each world; an engine that works without Python's lock overrides this."""
        for world, action, goal in zip(worlds, actions, goals, strict=True):
            world.advance(action, goal)

    @abstractmethod
    def draw(self) -> UInt8[np.ndarray, "native native 3"]:
        """The present picture at its native size."""

    @abstractmethod
    def distance(self, goal: Mapping[str, np.ndarray]) -> float:
        """How far the present state is from `goal`; see `VectorGoalEnv.distance`."""

    @classmethod
    def painter(cls, drawing: Drawing) -> Painter:
        """What draws worlds of this class; an engine with one way to draw refuses others."""
        if drawing != Drawing():
            raise InputError(f"{cls.__name__} has one way to draw its frames, not {drawing}.")
        return EachByItself(cls.draw)


class Film:
    """The frames of one episode, shot row by row: of every `draw_every`-th row, the first included; with 0 of none."""

    def __init__(
        self,
        simulator: type[Simulator],
        drawing: Drawing,
        *,
        image_size: int,
        device: torch.device | str,
        draw_every: int,
    ) -> None:
        self._painter = simulator.painter(drawing) if draw_every else None
        self._image_size, self._device, self._draw_every = image_size, device, draw_every
        self._num_shot = 0
        self._looks: list[np.ndarray] = []

    def shoot(self, world: Simulator) -> None:
        """Come to the next row, and add the present picture of `world` if it is one to be drawn."""
        if self._painter is not None and self._num_shot % self._draw_every == 0:
            self._looks.append(self._painter.look(world))
        self._num_shot += 1

    def with_pixels(self, columns: Columns) -> Columns:
        """The episode's columns, after `pixels`: all frames, area-averaged to the film's size on its device."""
        if self._painter is None:
            return columns
        frames = self._painter.paint(self._looks)
        if self._image_size != frames.shape[1]:
            frames = area_downsample(frames if frames.is_cuda else frames.to(self._device), self._image_size)
        return {"pixels": frames.cpu().numpy(), **columns}


class SimulatedVectorEnv(VectorGoalEnv):
    """A batch of `simulator_class` episodes. States are float64: rounding one would change what follows."""

    simulator_class: ClassVar[type[Simulator]]
    native_size: ClassVar[int] = 224
    state_dtype: ClassVar[torch.dtype] = torch.float64

    def __init__(
        self,
        num_envs: int,
        *,
        device: torch.device | str = "cpu",
        image_size: int | None = None,
        drawing: Drawing = Drawing(),  # noqa: B008 (frozen)
    ) -> None:
        size = self.native_size if image_size is None else image_size
        check_image_size(size, self.native_size, self.native_size)
        super().__init__(num_envs, device=device, image_size=size)
        self._worlds = [self.simulator_class() for _ in range(num_envs)]
        self._painter = self.simulator_class.painter(drawing)
        self._scene = self.simulator_class()  # where goals are drawn, so that drawing one disturbs no episode
        self._goals = [world.state() for world in self._worlds]
        self._has_goals = False  # without a goal no step ends early

    def state(self) -> dict[str, Tensor]:
        """The states of all worlds, column by column."""
        return self._stacked([world.state() for world in self._worlds])

    def goal(self) -> dict[str, Tensor]:
        """The goals of all episodes, column by column."""
        return self._stacked(self._goals)

    def columns(self) -> dict[str, Tensor]:
        """What a data file records of the present states."""
        return self._stacked([world.columns(goal) for world, goal in zip(self._worlds, self._goals, strict=True)])

    def render(self) -> UInt8[Tensor, "B Y X 3"]:
        """Frames of the worlds as they are."""
        return self._pictures([self._painter.look(world) for world in self._worlds])

    def render_goal(self) -> UInt8[Tensor, "B Y X 3"]:
        """Frames of a world loaded with each goal."""
        looks = []
        for goal in self._goals:
            self._scene.load(goal)
            looks.append(self._painter.look(self._scene))
        return self._pictures(looks)

    def distance(self) -> Float[Tensor, "B"]:
        """How far each world is from its goal."""
        found = [world.distance(goal) for world, goal in zip(self._worlds, self._goals, strict=True)]
        return torch.tensor(found, dtype=torch.float64, device=self.device)

    def _set_state(self, rows: dict[str, Tensor]) -> None:
        for world, row in zip(self._worlds, self._unstacked(rows), strict=True):
            world.load(row)

    def _set_goal(self, rows: dict[str, Tensor]) -> None:
        self._goals = self._unstacked(rows)
        self._has_goals = True

    def _advance(self, actions: Float[Tensor, "B action"]) -> None:
        self._advance_active(actions, torch.ones(self.num_envs, dtype=torch.bool))

    def _advance_active(self, actions: Float[Tensor, "B action"], active: Bool[Tensor, "B"]) -> None:
        taken, moving = actions.cpu().double().numpy(), active.nonzero().flatten().tolist()
        goals = [self._goals[b] if self._has_goals else None for b in moving]
        self.simulator_class.advance_all([self._worlds[b] for b in moving], list(taken[moving]), goals)

    def _check_values(self, rows: dict[str, Tensor], role: str) -> None:
        """Any finite number is accepted; subclasses refuse what their engine cannot hold."""

    def _pictures(self, looks: list[np.ndarray]) -> UInt8[Tensor, "B Y X 3"]:
        pictures = self._painter.paint(looks)
        if self.image_size != self.native_size:
            pictures = area_downsample(pictures, self.image_size)
        return pictures.to(self.device)

    def _stacked(self, rows: list[Columns]) -> dict[str, Tensor]:
        return {name: torch.from_numpy(np.stack([row[name] for row in rows])).to(self.device) for name in rows[0]}

    def _unstacked(self, rows: dict[str, Tensor]) -> list[dict[str, Any]]:
        arrays = {name: values.cpu().numpy() for name, values in rows.items()}
        return [{name: values[b].copy() for name, values in arrays.items()} for b in range(self.num_envs)]
