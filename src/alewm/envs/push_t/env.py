"""Push-T as a simulator, as a vector environment and as a Gymnasium environment, and where its episodes start."""

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from alewm.envs.contract import GoalEnv, Row, VectorGoalEnv
from alewm.envs.push_t import physics
from alewm.envs.push_t.render import shared_renderer
from alewm.envs.simulated import Columns, SimulatedVectorEnv, Simulator
from alewm.errors import InputError
from alewm.shapes import Float, Tensor, UInt8

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
    corners = physics.placed(np.array(physics.OUTLINE), block, angle)
    low, high = physics.WALLS[0][0], physics.WALLS[2][0]
    clearance = physics.WALL_RADIUS + margin
    is_inside = bool(corners.min() > low + clearance and corners.max() < high - clearance)
    from_block = physics.rotation(angle).T @ (pusher - block)
    return is_inside and bool(physics.distance_to_block(from_block) > physics.PUSHER_RADIUS + margin)


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


_FARTHEST = 10_000.0


class PushTVectorEnv(SimulatedVectorEnv):
    """A batch of Push-T episodes; the environment itself is described at `PushTEnv`."""

    action_dim: ClassVar[int] = 2
    clamps_actions: ClassVar[bool] = False
    state_shapes: ClassVar[Mapping[str, tuple[int, ...]]] = {"state": (physics.STATE_DIM,)}
    success_distance: ClassVar[float] = 1.0
    restores_exactly: ClassVar[bool] = False
    simulator_class: ClassVar[type[Simulator]] = PushTSimulator
    native_size: ClassVar[int] = physics.IMAGE_SIZE

    def _check_values(self, rows: dict[str, Tensor], role: str) -> None:
        places = rows["state"][:, :4]
        is_lost = (places.abs() > _FARTHEST).any(-1)
        if bool(is_lost.any()):
            found = places[is_lost][0].tolist()
            raise InputError(
                f"Column 'state' of the {role} must place pusher and block within {_FARTHEST:g} pixels of the origin "
                f"(the arena is {physics.ARENA_SIZE} wide), got {found}."
            )


class PushTEnv(GoalEnv):
    """A disc pushes a T-shaped block over a table, seen from above; disc and block must both arrive.

    ## Observation
    A dictionary of two images, uint8 [224, 224, 3]: `pixels`, the arena now, and `goal`, the arena at the goal. White
    floor, light grey walls, a slate grey T with a darker outline, a blue disc that pushes it, and a faint red speck
    where the block is touched. The pale green T never moves; it is a mark on the table, not the goal. The goal is not
    drawn. The picture is made on a canvas of 512 pixels, the unit of all positions, and reduced by bilinear
    interpolation: `alewm.envs.push_t.render`. `image_size` gives smaller images: exact area averages of the 224-pixel
    image (`alewm.resize`).

    ## State
    `state`, float64 [7]: pusher x, y; block x, y; block angle; pusher velocity x, y. Pixels of the canvas, x to the
    right and y down; the angle in [0, 2 pi); velocities in pixels per second. The block's place is the middle of its
    bar's outer edge; at angle 0 the bar is on top and the stem points down. The pusher can leave the arena. A state or
    a goal is loaded from this column; anything else in a row is ignored. Loading lets one substep of 0.01 s pass, in
    which the pusher drifts by a hundredth of its velocity and overlaps are pushed apart; until the first action, the
    row that was loaded is reported as it is. A state says nothing of the velocity that the last substep left the block,
    so what follows a row loaded in mid-push differs a little from what followed when it was recorded. `info` holds
    `state`, `proprio` (pusher x, y and velocity), `goal_state`, `n_contacts` (points at which the pusher touches the
    block) and `success`.

    ## Action
    Two numbers: for a tenth of a second the pusher is drawn to the point 100 pixels times the action from where it is.
    They are declared to be in [-1, 1] but not clipped. In each of 10 substeps of 0.01 s its velocity v becomes 0.8 v +
    (point - place). From rest it covers 29.6 % of the way; under a repeated action 40.7 % per step. The block moves
    only while it is pushed; contacts have no friction (`alewm.envs.push_t.physics`).

    ## Start
    Everything at rest: the pusher uniform on [50, 450]², the block on [100, 400]² at a uniform angle, drawn again while
    the two overlap or the block reaches into a wall. The goal is another such state.

    ## Reward and success
    The reward is always 0. Success is a Euclidean norm over the four differences in pusher x, y and block x, y strictly
    below 20 pixels, and block angles that differ by less than 20 degrees, where a full turn is no difference.
    Velocities do not count. The distance is the larger ratio of an error to its tolerance, so success is a distance
    below 1.

    ## End
    An episode terminates after a step that ends in success (never before the first). The registered environment is cut
    after 200 steps.

    ## Data
    `alewm collect push-t --demonstrations PATH` records copies of human demonstrations with noise, as the published
    training file was made; without them, an expert is recorded (`--behaviour expert`).
    [Push-T's data](../push-t-data.md) says how, and how near each is to the published file.

    ## Differences from the public version
    - The public version keeps the velocity of the block when a row is loaded into a scene that was already moving. Here
      every load begins a new scene, so that what follows depends on the row alone.
    - It does not reject overlaps at a reset, and throws the block out of the pusher or the wall in the first step.
    - Its reward is minus the distance over all seven numbers of the state, velocities included, which mixes units. Here
      the reward is 0, as in the other tasks; success is the same.
    - It draws with pygame, which wants a window system; here OpenCV fills the same shapes. The mean difference is
      about 0.1 of 255 levels (`tests/envs/test_push_t_render.py`).
    - Success on data of our expert is not comparable with published figures. Success on copies of the human
      demonstrations is about the same data but for their noise, on pairs of held-out demonstrations: published
      evaluations take pairs from the training file.

    ## Versions
    - v1: first version.
    """

    vector_class: ClassVar[type[VectorGoalEnv]] = PushTVectorEnv

    def sample_episode(self, generator: np.random.Generator) -> tuple[Row, Row]:
        """A start row and a goal row, both at rest and without contact."""
        return {"state": sample_state(generator)}, {"state": sample_state(generator)}
