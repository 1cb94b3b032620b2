"""Cube's simulated world: OGBench's scene and control with the published colours, one MuJoCo state per episode.

OGBench's environment owns one simulated world. Here it serves any number of them: a world is MuJoCo data, given to the
environment for the length of a call (`CubeScene.of`). Model, inverse kinematics and camera exist once per process.

As in OGBench, positions of sites and bodies after a step are those before its last physics step, 2 ms old: the next
target pose, the recorded effector and the picture are taken from these. Loading a row computes them afresh, and
starts the constraint solver from nothing. So what follows a restored state is close to the original, not equal.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from alewm.envs.batched import MujocoSimulator
from alewm.envs.offscreen import OffscreenCamera, mujoco
from alewm.envs.simulated import Columns
from alewm.shapes import Float

# After `offscreen`, which chooses the back end that these look for when they are imported.
from ogbench.manipspace import lie  # isort: skip
from ogbench.manipspace.envs.cube_env import CubeEnv  # isort: skip

IMAGE_SIZE = 224
"""Pixels per side of the native picture."""

NUM_QPOS, NUM_QVEL = 21, 20
"""Arm 6, gripper 8, and of the cube position and quaternion (7), or linear and angular velocity (6)."""

CUBE_POSITION, CUBE_QUATERNION = slice(14, 17), slice(17, 21)
"""Where the cube's pose is in qpos."""

START_EFFECTOR = (0.425, 0.0, 0.275)
"""Where the gripper starts, in metres."""

CUBE_AREA = ((0.30, -0.30), (0.55, 0.30))
"""Lowest and highest (x, y) at which cubes and targets are placed, in metres."""

CUBE_HEIGHT = 0.02
"""z of the centre of a cube on the floor."""

_PURPLE = (0.61, 0.28, 0.82, 1.0)
_GRIPPER_MATERIALS = ("ur5e/robotiq/black", "ur5e/robotiq/pad_gray")
_CAMERA = "front_pixels"


class CubeScene(CubeEnv):  # type: ignore[misc]
    """OGBench's environment with an opaque arm, a purple gripper and an invisible target, lent to one world at a time.

    The arm is opaque as with `ob_type="states"`; with `ob_type="pixels"` OGBench makes it nearly transparent.
    """

    def __init__(self) -> None:
        super().__init__(
            env_type="single",
            ob_type="states",
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

    def advance(self) -> None:
        """One control step of 0.05 s, in 25 physics steps, under the controls set before."""
        mujoco.mj_step(self._model, self._data, nstep=self._n_steps)
        mujoco.mj_rnePostConstraint(self._model, self._data)  # the contact forces among the observations

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
        known = self.known_to_oracle(target, quaternion)
        columns = {name.replace("/", "_"): np.array(values) for name, values in known.items() if name != _WORDS}
        return {"observation": self._scene().compute_observation(), **columns}

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
        scene = self._scene()
        scene.set_control(np.asarray(action, np.float64))
        self._previous = (self.data.qpos.copy(), self.data.qvel.copy())
        scene.advance()

    def distance(self, goal: Mapping[str, np.ndarray]) -> float:
        """Metres from the cube's centre to that of the goal's."""
        return self.cube_distance(goal["qpos"][CUBE_POSITION])

    def _scene(self) -> CubeScene:
        return scene().of(self.data, self._previous)
