"""A vector environment made of simulators that know one episode each (`Simulator`), stepped one after the other.

Physics engines step a single world. Their steps cost microseconds to a millisecond and a planner asks for a picture
only where it replans, so a loop in one process is enough for evaluation; collection runs a process per core.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from alewm.envs.contract import VectorGoalEnv
from alewm.envs.drawing import Drawing, EachByItself, Painter
from alewm.errors import InputError
from alewm.resize import area_downsample, checked_image_size
from alewm.shapes import Bool, Float, Tensor, UInt8

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
        return EachByItself()


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
        super().__init__(num_envs, device=device, image_size=checked_image_size(size, self.native_size))
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
        taken = actions.cpu().double().numpy()
        for b in active.nonzero().flatten().tolist():
            self._worlds[b].advance(taken[b], self._goals[b] if self._has_goals else None)

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
