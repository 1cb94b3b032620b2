"""What every goal environment offers, batched (`VectorGoalEnv`) and as a Gymnasium environment (`GoalEnv`).

A *row* is one row of a data file reduced to the columns a state is restored from: a mapping from column name to
numbers. The same columns of another row describe a goal. Because a `GoalEnv` is a `VectorGoalEnv` of one, the two
cannot disagree.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch

from alewm.errors import InputError
from alewm.shapes import Bool, Float, Tensor, UInt8

Row = Mapping[str, Any]
"""Columns of one state, or of a batch of them, as tensors or anything NumPy reads as an array."""


class VectorGoalEnv(ABC):
    """A batch of B independent episodes, stepped and drawn together.

    Episodes never influence one another: episode b's states and pixels are the same bytes whatever batch it is in. What
    comes from outside is checked here, once for all environments; subclasses see finite tensors of the right shape on
    `device`, states as `state_dtype` and actions as float32.
    """

    action_dim: ClassVar[int]
    """Numbers per action."""
    clamps_actions: ClassVar[bool]
    """Whether an action beyond [-1, 1] acts like its clamped value (otherwise it is executed as it is)."""
    state_shapes: ClassVar[Mapping[str, tuple[int, ...]]]
    """The columns a state and a goal are restored from, with the shape of each."""
    state_dtype: ClassVar[torch.dtype] = torch.float32
    """In what precision states are kept; restoring one is exact in it."""
    success_distance: ClassVar[float]
    """An episode succeeds while its `distance` is strictly below this."""
    restores_exactly: ClassVar[bool] = True
    """Whether what follows a restored state equals what followed the original (not where engines hide state)."""

    def __init__(self, num_envs: int, *, device: torch.device | str, image_size: int) -> None:
        if num_envs < 1:
            raise InputError(f"A vector environment needs at least one episode, got {num_envs}.")
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.image_size = image_size

    def reset_to(self, start_rows: Row, goal_rows: Row) -> None:
        """Start every episode at its row of `start_rows`, with its row of `goal_rows` as the goal.

        Each needs the columns `state_shapes` with a leading axis of `num_envs`; other columns are ignored.
        """
        start, goal = self._checked_rows(start_rows, "start"), self._checked_rows(goal_rows, "goal")
        self._set_state(start)
        self._set_goal(goal)

    def set_state(self, rows: Row) -> None:
        """Put every episode into its row of `rows`; goals stay."""
        self._set_state(self._checked_rows(rows, "state"))

    def set_goal(self, rows: Row) -> None:
        """Give every episode its row of `rows` as the goal; states stay."""
        self._set_goal(self._checked_rows(rows, "goal"))

    def step(self, actions: Any, active: Bool[Tensor, "B"] | None = None) -> None:
        """Advance every episode by one environment step under its action, `actions` being [B, action_dim].

        Those that are not `active`, if that is given, will not be looked at again: an environment may leave them.
        """
        actions = _tensor(actions)
        expected = (self.num_envs, self.action_dim)
        if tuple(actions.shape) != expected:
            raise InputError(f"Actions must have the shape {expected}, got {tuple(actions.shape)}.")
        actions = actions.to(self.device, torch.float32)
        _refuse_non_finite(actions, "Actions")
        if active is None:
            self._advance(actions)
        else:
            self._advance_active(actions, active)

    def success(self) -> Bool[Tensor, "B"]:
        """Whether each episode is at its goal now; nothing is latched."""
        return self.distance() < self.success_distance

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Copies of the columns that `set_state` would need to come back here."""

    @abstractmethod
    def goal(self) -> dict[str, Tensor]:
        """Copies of the columns that `set_goal` would need to set the present goals."""

    @abstractmethod
    def columns(self) -> dict[str, Tensor]:
        """Copies of what a data file records of the present states, besides pixels and actions."""

    @abstractmethod
    def render(self) -> UInt8[Tensor, "B Y X 3"]:
        """A frame of every episode as it is now."""

    @abstractmethod
    def render_goal(self) -> UInt8[Tensor, "B Y X 3"]:
        """A frame of every episode as it would look at its goal."""

    @abstractmethod
    def distance(self) -> Float[Tensor, "B"]:
        """How far each episode is from its goal: one number per episode, below `success_distance` exactly at success.

        Where success has several conditions, it is the largest ratio of an error to its tolerance.
        """

    @abstractmethod
    def _set_state(self, rows: dict[str, Tensor]) -> None: ...

    @abstractmethod
    def _set_goal(self, rows: dict[str, Tensor]) -> None: ...

    @abstractmethod
    def _advance(self, actions: Float[Tensor, "B action"]) -> None: ...

    def _advance_active(self, actions: Float[Tensor, "B action"], active: Bool[Tensor, "B"]) -> None:
        """Advance at least the active episodes; all at once, unless each has its cost."""
        self._advance(actions)

    @abstractmethod
    def _check_values(self, rows: dict[str, Tensor], role: str) -> None:
        """Refuse finite numbers that are no state of this environment; `role` names them in the message."""

    def _checked_rows(self, rows: Row, role: str) -> dict[str, Tensor]:
        checked = {}
        for name, shape in self.state_shapes.items():
            if name not in rows:
                raise InputError(
                    f"The {role} lacks the column {name!r}; needed are {', '.join(self.state_shapes)}, "
                    f"found {', '.join(rows) or 'none'}."
                )
            values = _tensor(rows[name])
            expected = (self.num_envs, *shape)
            if tuple(values.shape) != expected:
                raise InputError(
                    f"Column {name!r} of the {role} must have the shape {expected}, got {tuple(values.shape)}."
                )
            checked[name] = values.to(self.device, self.state_dtype, copy=True)
            _refuse_non_finite(checked[name], f"Column {name!r} of the {role}")
        self._check_values(checked, role)
        return checked


class GoalEnv(gymnasium.Env[dict[str, Any], np.ndarray], ABC):
    """One episode of a `VectorGoalEnv` behind the Gymnasium interface.

    Observations are images, {"pixels", "goal"}; the true state is in `info` only, where a policy that learns from
    pixels does not look. `reset(options={"start": row, "goal": row})` loads rows instead of drawing them.
    """

    metadata = {  # noqa: RUF012 (Gymnasium declares it without ClassVar)
        "render_modes": ["rgb_array"],
        "render_fps": 10,
    }

    vector_class: ClassVar[type[VectorGoalEnv]]
    """The batched form, of which this is one episode."""

    def __init__(
        self, *, image_size: int = 224, render_mode: str | None = None, device: torch.device | str = "cpu"
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f"Unknown render mode {render_mode!r}; known: {', '.join(self.metadata['render_modes'])}.")
        self.episode = self.vector_class(1, device=device, image_size=image_size)
        self.render_mode = render_mode
        image = gymnasium.spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        self.observation_space = gymnasium.spaces.Dict({"pixels": image, "goal": image})
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.episode.action_dim,), np.float32)
        self._goal_image: np.ndarray | None = None

    @abstractmethod
    def sample_episode(self, generator: np.random.Generator) -> tuple[Row, Row]:
        """A start row and a goal row, drawn from the environment's start distribution."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The first observation and info of a new episode."""
        super().reset(seed=seed)
        given = dict(options or {})
        # Drawn even when rows are given: what follows from a seed does not depend on the options.
        start, goal = self.sample_episode(self.np_random)
        start, goal = given.pop("start", start), given.pop("goal", goal)
        if given:
            raise InputError(f"Unknown reset option {next(iter(given))!r}; known: start, goal.")
        self.episode.reset_to(_batch_of_one(start), _batch_of_one(goal))
        self._goal_image = None
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Observation, reward (always 0), whether the goal was reached, False, and info; a wrapper limits the time."""
        action = np.asarray(action)
        if action.shape != self.action_space.shape:
            raise InputError(f"The action must have the shape {self.action_space.shape}, got {action.shape}.")
        self.episode.step(_tensor(action)[None])
        return self._observation(), 0.0, self.success(), False, self._info()

    def set_state(self, row: Row) -> None:
        """Put the episode into the state `row`."""
        self.episode.set_state(_batch_of_one(row))

    def set_goal(self, row: Row) -> None:
        """Make `row` the goal."""
        self.episode.set_goal(_batch_of_one(row))
        self._goal_image = None

    def state(self) -> dict[str, np.ndarray]:
        """The row `set_state` would need to come back here."""
        return _first(self.episode.state())

    def goal(self) -> dict[str, np.ndarray]:
        """The row `set_goal` would need to set the present goal."""
        return _first(self.episode.goal())

    def goal_image(self) -> np.ndarray:
        """The frame of the goal, uint8 [Y, X, 3]."""
        if self._goal_image is None:
            self._goal_image = self.episode.render_goal()[0].cpu().numpy()
        return self._goal_image.copy()

    def success(self) -> bool:
        """Whether the episode is at its goal."""
        return bool(self.episode.success()[0])

    def distance(self) -> float:
        """How far the episode is from its goal; see `VectorGoalEnv.distance`."""
        return float(self.episode.distance()[0])

    def render(self) -> np.ndarray:
        """The frame of the present state, uint8 [Y, X, 3], whatever the render mode."""
        return self.episode.render()[0].cpu().numpy()

    def _observation(self) -> dict[str, np.ndarray]:
        return {"pixels": self.render(), "goal": self.goal_image()}

    def _info(self) -> dict[str, Any]:
        return {**_first(self.episode.columns()), "success": self.success()}


def _tensor(values: Any) -> Tensor:
    # Copied first, because torch warns of sharing memory with arrays that are read-only.
    return values if isinstance(values, Tensor) else torch.as_tensor(np.array(values))


def _refuse_non_finite(values: Float[Tensor, " B *features"], what: str) -> None:
    is_bad = ~values.isfinite().flatten(1).all(1)
    if bool(is_bad.any()):
        episode = int(is_bad.nonzero()[0])
        raise InputError(f"{what} must be finite numbers; episode {episode} has {values[episode].tolist()}.")


def _batch_of_one(row: Row) -> dict[str, Tensor]:
    return {name: _tensor(values)[None] for name, values in row.items()}


def _first(rows: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    # Copies, so that a kept info and the environment do not share memory.
    return {name: values[0].cpu().numpy().copy() for name, values in rows.items()}
