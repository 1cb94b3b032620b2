"""One Push-T episode behind the interface that all simulators share, and where it starts when nothing is loaded."""

import math
from collections.abc import Mapping

import numpy as np

from alewm.envs.push_t import geometry, physics
from alewm.envs.push_t.render import shared_renderer
from alewm.envs.simulated import Columns, Simulator
from alewm.shapes import Float, UInt8

PUSHER_LOW, PUSHER_HIGH = 50.0, 450.0
BLOCK_LOW, BLOCK_HIGH = 100.0, 400.0


def sample_state(generator: np.random.Generator) -> Float[np.ndarray, "7"]:
    """A state at rest: pusher uniform on [50, 450]², block uniform on [100, 400]² at any angle, not overlapping.

    The whole state is drawn again while pusher and block, or block and walls, touch.
    """
    while True:
        pusher = generator.uniform(PUSHER_LOW, PUSHER_HIGH, 2)
        block = generator.uniform(BLOCK_LOW, BLOCK_HIGH, 2)
        angle = generator.uniform(0.0, 2 * math.pi)
        if is_free(pusher, block, angle):
            return np.array([*pusher, *block, angle, 0.0, 0.0])


def is_free(pusher: Float[np.ndarray, "2"], block: Float[np.ndarray, "2"], angle: float, margin: float = 1.0) -> bool:
    """Whether the pusher stays `margin` off the block, and the block off the walls."""
    corners = geometry.placed(np.array(geometry.OUTLINE), block, angle)
    low, high = geometry.WALLS[0][0], geometry.WALLS[2][0]
    clearance = geometry.WALL_RADIUS + margin
    is_inside = bool(corners.min() > low + clearance and corners.max() < high - clearance)
    from_block = geometry.rotation(angle).T @ (pusher - block)
    return is_inside and bool(geometry.distance_to_block(from_block) > geometry.PUSHER_RADIUS + margin)


class PushTSimulator(Simulator):
    """A world, its picture, and the row it was loaded from.

    Loading a row lets a substep pass, so the world is not quite where the row says. Until the first action, `state` and
    `columns` give the row itself: it is what `load` needs to come back here, and what the file that it came from
    says. Pictures and distances are those of the world.
    """

    def __init__(self) -> None:
        self._draw = shared_renderer()
        super().__init__()

    @staticmethod
    def resting_row() -> Columns:
        """A state without contact."""
        return {"state": np.array(physics.AT_REST)}

    def load(self, row: Mapping[str, np.ndarray]) -> None:
        """Begin a new world in the row's state."""
        self._world = physics.PushTWorld(row["state"])
        self._state = row["state"].copy()

    def state(self) -> Columns:
        """`state` [7]: pusher x, y, block x, y, angle, pusher velocity x, y."""
        return {"state": self._state.copy()}

    def columns(self, goal: Mapping[str, np.ndarray]) -> Columns:
        """`state`, `proprio` (pusher x, y and velocity), `goal_state` and `n_contacts`."""
        contacts = self._world.contacts()
        return {**recorded_columns(self._state, contacts), "goal_state": goal["state"].copy()}

    def advance(self, action: np.ndarray, goal: Mapping[str, np.ndarray] | None) -> None:
        """One step; Push-T does not look at the goal."""
        self._world.step(float(action[0]), float(action[1]))
        self._state = self._world.state()

    def draw(self) -> UInt8[np.ndarray, "224 224 3"]:
        """The world as it is."""
        return self._draw(self._world.state(), self._world.contacts())

    def distance(self, goal: Mapping[str, np.ndarray]) -> float:
        """The larger ratio of an error to its tolerance (`physics.goal_distance`)."""
        return physics.goal_distance(self._world.state(), goal["state"])


def recorded_columns(state: np.ndarray, contacts: list[physics.ContactPoint]) -> Columns:
    """What a data file records of a state: `state` [7], `proprio` [4] and how often the pusher touches the block."""
    return {
        "state": state.copy(),
        "proprio": state[[0, 1, 5, 6]],
        "n_contacts": np.array(sum(contact.is_by_pusher for contact in contacts), np.int64),
    }
