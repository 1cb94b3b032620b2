"""OGBench's scene for one cube, as the library builds it, with the colours and the camera of the published pictures.

OGBench's environment owns one simulated world. Here it serves any number of them: a world is MuJoCo data, given to the
environment for the length of a call (`CubeScene.of`). Model, inverse kinematics and camera exist once per process.
"""

from functools import cache
from typing import Any

import numpy as np

from alewm.envs.offscreen import OffscreenCamera, mujoco
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
        """Put the invisible target there; nothing feels it."""
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
def camera() -> OffscreenCamera:
    """What draws the scene, one per process."""
    return OffscreenCamera(scene().model, _CAMERA, IMAGE_SIZE)


def turned(yaw: float) -> Float[np.ndarray, "4"]:
    """The quaternion (w, x, y, z) of a cube turned by `yaw`."""
    quaternion: np.ndarray = np.array(lie.SO3.from_z_radians(yaw).wxyz)
    return quaternion
