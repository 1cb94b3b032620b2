"""Cube: a robot arm moves a cube; OGBench's scene and control with the published colours, one MuJoCo state per episode.

OGBench's environment owns one simulated world. Here it serves any number of them: a world is MuJoCo data, given to the
environment for the length of a call (`CubeScene.of`). Model, inverse kinematics and camera exist once per process.

As in OGBench, positions of sites and bodies after a step are those before its last physics step, 2 ms old: the next
target pose, the recorded effector and the picture are taken from these. Loading a row computes them afresh, and
starts the constraint solver from nothing. So what follows a restored state is close to the original, not equal.

**Data.** OGBench's plan oracle picks the cube up and puts it down, with smoothed noise, for 200 steps. A plan lasts
about 88 steps. When one is finished, `one-goal` plans again for the target that the episode began with, as the
published data do, so the cube is picked up and put down where it is; `new-goals` draws another target first, as OGBench
itself does.

Every episode has its own random stream, keyed by (seed, episode index). It yields, in this order, the start, the first
target, the seed of the oracle's own numbers, and later targets, so that an episode's bytes depend on nothing else.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import torch

from alewm.envs.batched_drawing import MujocoSimulator
from alewm.envs.contract import GoalEnv, Row, VectorGoalEnv
from alewm.envs.cube_control import CUBE_POSITION, CUBE_QUATERNION, LeanCube, LeanPlanOracle, observation_of
from alewm.envs.offscreen import OffscreenCamera, mujoco
from alewm.envs.recording import episode_stream, full_length_episode
from alewm.envs.simulated import Columns, Drawing, Film, SimulatedVectorEnv, Simulator
from alewm.errors import InputError
from alewm.kernels.compiled import thread_pool
from alewm.shapes import Float, Tensor
from alewm.workers import num_available_cores

# After `offscreen`, which chooses the back end that it looks for when it is imported.
from ogbench.manipspace import lie  # isort: skip

IMAGE_SIZE = 224
"""Pixels per side of the native picture."""

NUM_QPOS, NUM_QVEL = 21, 20
"""Arm 6, gripper 8, and of the cube position and quaternion (7), or linear and angular velocity (6)."""

START_EFFECTOR = (0.425, 0.0, 0.275)
"""Where the gripper starts, in metres."""

CUBE_AREA = ((0.30, -0.30), (0.55, 0.30))
"""Lowest and highest (x, y) at which cubes and targets are placed, in metres."""

CUBE_HEIGHT = 0.02
"""z of the centre of a cube on the floor."""

_PURPLE = (0.61, 0.28, 0.82, 1.0)
_GRIPPER_MATERIALS = ("ur5e/robotiq/black", "ur5e/robotiq/pad_gray")
_CAMERA = "front_pixels"


class CubeScene(LeanCube):
    """OGBench's environment with an opaque arm, a purple gripper and an invisible target, lent to one world at a time.

    The arm is opaque as with `ob_type="states"`; with `ob_type="pixels"` OGBench makes it nearly transparent.
    """

    def __init__(self) -> None:
        super().__init__(
            mode="data_collection",
            visualize_info=False,
            terminate_at_goal=False,
            width=IMAGE_SIZE,
            height=IMAGE_SIZE,
        )
        self.reset(seed=0)  # compiles the model; no world is ever in the state this draws

    def build_mjcf_model(self) -> Any:
        """The scene's description, its gripper purple."""
        arena = super().build_mjcf_model()
        for material in _GRIPPER_MATERIALS:
            arena.find("material", material).rgba = _PURPLE
        return arena

    def of(self, data: Any, previous: tuple[np.ndarray, np.ndarray]) -> "CubeScene":
        """This environment, looking at the world `data` whose qpos and qvel were `previous` a step ago."""
        self._data = data
        self._prev_qpos, self._prev_qvel = previous
        return self

    def advance(self, data: Any) -> None:
        """One control step of the world `data`: 0.05 s, 25 physics steps, under the controls set before."""
        mujoco.mj_step(self._model, data, nstep=self._n_steps)
        mujoco.mj_rnePostConstraint(self._model, data)  # the contact forces among the observations

    def place_target(self, position: np.ndarray, quaternion: np.ndarray) -> None:
        """Move the invisible target, which has no contacts."""
        (target,) = self._cube_target_mocap_ids
        self._data.mocap_pos[target] = position
        self._data.mocap_quat[target] = quaternion

    def arm_at_home(self) -> Float[np.ndarray, "6"]:
        """Joint angles from which inverse kinematics sets out."""
        angles: np.ndarray = self._home_qpos.copy()
        return angles

    def arm_at_start(self, yaw: float) -> Float[np.ndarray, "6"]:
        """Joint angles at which the gripper is at its start, pointing down and turned by `yaw`."""
        turned_down = lie.SO3.from_z_radians(yaw) @ self._effector_down_rotation
        pinch = lie.SE3.from_rotation_and_translation(turned_down, np.array(START_EFFECTOR))
        flange = pinch @ self._T_pa
        angles: np.ndarray = self._ik.solve(
            pos=flange.translation(), quat=flange.rotation().wxyz, curr_qpos=self._home_qpos
        )
        return angles


@cache
def scene() -> CubeScene:
    """The scene of this process."""
    return CubeScene()


@cache
def camera(shadow_size: int = 0) -> OffscreenCamera:
    """What draws the scene, from the front and without a target, one per process and size of the shadow map."""
    return OffscreenCamera(scene().model, _CAMERA, IMAGE_SIZE, shadow_size)


def turned(yaw: float) -> Float[np.ndarray, "4"]:
    """The quaternion (w, x, y, z) of a cube turned by `yaw`."""
    quaternion: np.ndarray = np.array(lie.SO3.from_z_radians(yaw).wxyz)
    return quaternion


SUCCESS_DISTANCE = 0.04
"""Metres between the centres of cube and target, height included, up to and including which the goal is reached."""

_WORDS = "privileged/target_task"  # the one column that is text, and the same in every row


def recorded_columns(known: Mapping[str, Any]) -> Columns:
    """The columns of a state that OGBench describes as `known`."""
    columns = {name.replace("/", "_"): np.asarray(values) for name, values in known.items() if name != _WORDS}
    return {"observation": observation_of(known), **columns}


class CubeSimulator(MujocoSimulator):
    """One world; all worlds of a process share the scene and the camera."""

    camera = staticmethod(camera)

    def __init__(self) -> None:
        super().__init__(mujoco.MjData(scene().model))

    @staticmethod
    def resting_row() -> Columns:
        """The arm folded as OGBench begins, the cube in the middle of its area."""
        qpos = np.zeros(NUM_QPOS)
        qpos[:6] = scene().arm_at_home()
        qpos[CUBE_POSITION] = (0.425, 0.0, CUBE_HEIGHT)
        qpos[CUBE_QUATERNION] = (1.0, 0.0, 0.0, 0.0)
        return {"qpos": qpos, "qvel": np.zeros(NUM_QVEL)}

    def load(self, row: Mapping[str, np.ndarray]) -> None:
        """Positions and velocities; controls, time and the solver's memory begin at zero."""
        model = scene().model
        mujoco.mj_resetData(model, self.data)
        self.data.qpos[:] = row["qpos"]
        self.data.qvel[:] = row["qvel"]
        mujoco.mj_forward(model, self.data)
        self._previous = (self.data.qpos.copy(), self.data.qvel.copy())

    def state(self) -> Columns:
        """`qpos` [21] and `qvel` [20]."""
        return {"qpos": self.data.qpos.copy(), "qvel": self.data.qvel.copy()}

    def columns(self, goal: Mapping[str, np.ndarray]) -> Columns:
        """The recorded columns, the target being the cube of the goal."""
        return self.recorded(goal["qpos"][CUBE_POSITION], goal["qpos"][CUBE_QUATERNION])

    def recorded(self, target: Float[np.ndarray, "3"], quaternion: Float[np.ndarray, "4"]) -> Columns:
        """The recorded columns with the target at this pose: OGBench's, with underscores for slashes."""
        return recorded_columns(self.known_to_oracle(target, quaternion))

    def known_to_oracle(self, target: Float[np.ndarray, "3"], quaternion: Float[np.ndarray, "4"]) -> dict[str, Any]:
        """OGBench's description of the state and of a target, under OGBench's names."""
        scene = self._scene()
        scene.place_target(target, quaternion)
        known: dict[str, Any] = scene.compute_ob_info()
        return known

    def cube_distance(self, target: Float[np.ndarray, "3"]) -> float:
        """Metres from the cube's centre to `target`."""
        return float(np.linalg.norm(self.data.qpos[CUBE_POSITION] - target))

    def advance(self, action: np.ndarray, goal: Mapping[str, np.ndarray] | None) -> None:
        """One control step of 0.05 s towards a pose relative to the present one."""
        self._set_control(action)
        scene().advance(self.data)

    @classmethod
    def advance_all(
        cls,
        worlds: Sequence[Any],
        actions: Sequence[np.ndarray],
        goals: Sequence[Mapping[str, np.ndarray] | None],
    ) -> None:
        """The same for each world; physics, which takes most of the time, by a thread per core.

        MuJoCo lets go of Python's lock while it steps a world.
        """
        for world, action in zip(worlds, actions, strict=True):
            world._set_control(action)
        list(thread_pool(num_available_cores(), "physics").map(scene().advance, [world.data for world in worlds]))

    def _set_control(self, action: np.ndarray) -> None:
        self._scene().set_control(np.asarray(action, np.float64))
        self._previous = (self.data.qpos.copy(), self.data.qvel.copy())

    def distance(self, goal: Mapping[str, np.ndarray]) -> float:
        """Metres from the cube's centre to that of the goal's."""
        return self.cube_distance(goal["qpos"][CUBE_POSITION])

    def _scene(self) -> CubeScene:
        return scene().of(self.data, self._previous)


MAX_STEPS = 200
"""Environment steps of every episode; it has a row more."""

NOISE, NOISE_SMOOTHING = 0.1, 0.5
"""Standard deviation of the plan's noise in units of the action's range, and that of its smoothing in steps."""


def sample_start(generator: np.random.Generator) -> dict[str, np.ndarray]:
    """A row at rest: the gripper at its start with any yaw, the cube on the floor, anywhere in its area, any yaw."""
    row = CubeSimulator.resting_row()
    row["qpos"][:6] = scene().arm_at_start(generator.uniform(-np.pi, np.pi))
    row["qpos"][CUBE_POSITION], row["qpos"][CUBE_QUATERNION] = sample_pose(generator)
    return row


def sample_pose(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Position and quaternion of a cube on the floor."""
    position = np.array([*generator.uniform(*CUBE_AREA), CUBE_HEIGHT])
    return position, turned(generator.uniform(0, 2 * np.pi))


def _collect_episodes(
    seed: int,
    episode_indices: Iterable[int],
    *,
    image_size: int = IMAGE_SIZE,
    max_steps: int = MAX_STEPS,
    draw_every: int = 1,
    device: torch.device | str = "cpu",
    drawing: Drawing = Drawing(),  # noqa: B008 (frozen)
    new_goals: bool,
) -> Iterator[dict[str, np.ndarray]]:
    """Finished episodes in the order asked for, with `pixels` uint8 [T, Y, X, 3] unless `draw_every` is 0.

    The columns are OGBench's (`CubeSimulator.recorded`); `success` says whether the cube is at the target of that
    row, `reward` is 1 there and 0 elsewhere.
    """
    for index in episode_indices:
        film = Film(CubeSimulator, drawing, image_size=image_size, device=device, draw_every=draw_every)
        yield film.with_pixels(_episode(seed, index, new_goals, max_steps, film))


collect_one_goal = partial(_collect_episodes, new_goals=False)
"""Episodes with one target each, as published."""

collect_new_goals = partial(_collect_episodes, new_goals=True)
"""Episodes with a new target whenever a plan is finished, as OGBench collects."""


def _episode(seed: int, index: int, new_goals: bool, max_steps: int, film: Film) -> dict[str, np.ndarray]:
    stream = episode_stream(seed, index)
    world = CubeSimulator()
    world.load(sample_start(stream))
    target = sample_pose(stream)
    numbers = np.random.RandomState(stream.integers(2**32, size=8))
    oracle = LeanPlanOracle(scene(), noise=NOISE, noise_smoothing=NOISE_SMOOTHING)

    def plan() -> None:
        with global_numbers(numbers):
            oracle.reset(None, world.known_to_oracle(*target))

    known = world.known_to_oracle(*target)
    rows, actions, is_reached = [recorded_columns(known)], [], [False]
    film.shoot(world)
    plan()
    for _ in range(max_steps):
        # Rounded as it is stored, so that the recorded action repeats what happened.
        action = oracle.select_action(None, known).astype(np.float32)  # which does not look at the target
        world.advance(action, None)
        known = world.known_to_oracle(*target)
        rows.append(recorded_columns(known))
        film.shoot(world)
        actions.append(action)
        is_reached.append(world.cube_distance(target[0]) <= SUCCESS_DISTANCE)
        if oracle.done:
            target = sample_pose(stream) if new_goals else target
            plan()
    columns = full_length_episode(rows, actions, [float(reached) for reached in is_reached[1:]])
    return {**columns, "success": np.array(is_reached)}


@contextmanager
def global_numbers(source: np.random.RandomState) -> Iterator[None]:
    """Let what draws from NumPy's global generator, as OGBench's oracles do, draw from `source` instead."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.set_state(source.get_state())  # noqa: NPY002
    try:
        yield
    finally:
        source.set_state(np.random.get_state())  # noqa: NPY002
        np.random.set_state(before)  # noqa: NPY002


class CubeVectorEnv(SimulatedVectorEnv):
    """A batch of Cube episodes; the environment itself is described at `CubeEnv`."""

    simulator_class: ClassVar[type[Simulator]] = CubeSimulator
    native_size: ClassVar[int] = IMAGE_SIZE
    action_dim: ClassVar[int] = 5
    clamps_actions: ClassVar[bool] = False
    state_shapes: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "qpos": (NUM_QPOS,),
        "qvel": (NUM_QVEL,),
    }
    # Success is up to and including the limit, and the contract says strictly below.
    success_distance: ClassVar[float] = math.nextafter(SUCCESS_DISTANCE, math.inf)
    restores_exactly: ClassVar[bool] = False

    def _check_values(self, rows: dict[str, Tensor], role: str) -> None:
        is_nowhere = (rows["qpos"][:, CUBE_QUATERNION] == 0).all(-1)
        if bool(is_nowhere.any()):
            episode = int(is_nowhere.nonzero()[0])
            raise InputError(
                f"Column 'qpos' of the {role} must hold a quaternion of the cube at 17 to 20; "
                f"that of episode {episode} is zero."
            )


class CubeEnv(GoalEnv):
    """A robot arm moves a cube over the floor to where it lies in a picture.

    ## Observation
    A dictionary of two images, uint8 [224, 224, 3]: `pixels`, the scene now, and `goal`, the scene in the goal row, arm
    included. OGBench's scene from its camera `front_pixels`, drawn by MuJoCo with shadows and four samples per pixel: a
    dark floor with light lines, a grey UR5e arm, a purple Robotiq gripper, a red cube of 4 cm. No target is drawn.
    `image_size` gives exact area averages of that picture.

    ## State
    `qpos`, float64 [21]: six arm joints, eight gripper joints, the cube's position (14 to 16, metres) and quaternion
    (17 to 20, w first); `qvel`, float64 [20]. A state or a goal is loaded from these columns. `info` holds OGBench's
    columns besides: `observation` (28 numbers), `proprio_*`, `privileged_block_0_*`, `privileged_target_block*` (the
    goal's cube), `control`, `time`, `prev_qpos`, `prev_qvel`, and `success`.

    ## Action
    Five numbers, nominally in [-1, 1] and not clamped: the gripper's motion along x, y, z (times 5 cm), its turn about
    the vertical (times 0.3 rad) and the change of its opening (1 closes it, -1 opens it). They are relative to the
    measured pose; the resulting position is clamped to x 0.25 to 0.60, y -0.35 to 0.35, z 0.02 to 0.35 m and the
    opening to [0, 1]. The gripper always points down. A step is 0.05 s: joint targets from inverse kinematics, followed
    by position actuators in 25 physics steps.

    ## Start
    The gripper at (0.425, 0, 0.275) m with any yaw, open; the cube on the floor, x from 0.30 to 0.55, y from -0.30 to
    0.30 m, with any yaw. The goal is drawn likewise.

    ## Reward and success
    The reward is always 0. Success is a distance of at most 4 cm between the centres of the cube and of the goal's
    cube, height included; neither orientation nor arm matter. Many pairs of rows 25 steps apart are solved at the start
    (about two in five with the published behaviour): report the others apart.

    ## End
    An episode terminates after a step that ends in success. The registered environment is cut after 200 steps.

    ## Differences from the public version
    - Loading a row resets controls, time and the constraint solver's memory, which there stay as they were: what
      follows a row does not depend on what came before. As there, what follows is not exactly what followed in the
      recorded episode (`alewm.envs.cube`).
    - Episodes are determined by a seed and a number; the public collector cannot be seeded.
    - `new-goals`, a second behaviour, draws a target whenever a plan is finished. It has about as many pairs that are
      solved at the start, but of the others random actions solve fewer
      (`alewm-lab bench replay-simulated --task cube`).
    - Without a data file a goal is the scene with the arm at a start of its own; the public version has no picture of
      a goal then.
    - Files lack the columns `id`, `render_time`, `target` and `privileged_target_task` (the word "cube").

    ## Versions
    - v1: first version.
    """

    metadata = {**GoalEnv.metadata, "render_fps": 20}  # noqa: RUF012 (Gymnasium declares it without ClassVar)

    vector_class: ClassVar[type[VectorGoalEnv]] = CubeVectorEnv

    def sample_episode(self, generator: np.random.Generator) -> tuple[Row, Row]:
        """A start row and a goal row, both arms at rest."""
        return sample_start(generator), sample_start(generator)
