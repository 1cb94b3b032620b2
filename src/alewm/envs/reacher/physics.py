"""Reacher's physics, picture and measures: dm_control's model file, stepped and drawn with plain MuJoCo.

Two things differ from what the file says. The target's material is transparent, so that no picture shows a goal.
And the constraint solver starts from scratch in every step, instead of from its last solution: that is no part of
a recorded state, so with it an episode continued from a row would differ from the original in the last digits whenever
the wrist is at its limit.
"""

import importlib.resources
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from alewm.envs.batched import MujocoSimulator
from alewm.envs.offscreen import OffscreenCamera, mujoco
from alewm.envs.simulated import Columns
from alewm.shapes import Float

IMAGE_SIZE = 224
"""Pixels per side of the native picture."""

ACTION_REPEAT = 2
"""Physics steps of 0.02 s per environment step."""

JOINT_TOLERANCE = 0.05
"""Radians within which each joint must be, as it is and not modulo a turn."""

WRIST_LIMIT = np.deg2rad(160)
"""The wrist's range is ± this; a soft limit, which momentum oversteps a little."""

LINK_LENGTH = 0.12
"""Metres from shoulder to wrist, and from wrist to finger."""

TARGET_RADIUS = 0.015
"""Metres: that of the hidden target, as in dm_control's harder task."""

_CAMERA = "fixed"


@cache
def model() -> Any:
    """The compiled model, one per process."""
    path = importlib.resources.files("dm_control") / "suite" / "reacher.xml"
    compiled = mujoco.MjModel.from_xml_path(str(path))
    compiled.material("target").rgba[3] = 0
    compiled.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_WARMSTART
    return compiled


@cache
def camera(shadow_size: int = 0) -> OffscreenCamera:
    """What draws the model, one per process and size of the shadow map: it looks straight down from 0.75 m."""
    return OffscreenCamera(model(), _CAMERA, IMAGE_SIZE, shadow_size)


def finger_position(qpos: Float[np.ndarray, "2"]) -> Float[np.ndarray, "2"]:
    """(x, y) in metres of the finger at the joint angles `qpos`."""
    angles = np.cumsum(qpos)
    return LINK_LENGTH * np.array([np.cos(angles).sum(), np.sin(angles).sum()])


def pixels_per_metre() -> float:
    """Pixels of the native picture that a metre takes at the height of the finger."""
    compiled = model()
    height = compiled.camera(_CAMERA).pos[2] - compiled.body("finger").pos[2] - compiled.body("arm").pos[2]
    seen: float = 2 * height * np.tan(np.deg2rad(float(compiled.camera(_CAMERA).fovy[0])) / 2)
    return IMAGE_SIZE / seen


class ReacherSimulator(MujocoSimulator):
    """One arm; all arms of a process share the model and the camera."""

    camera = staticmethod(camera)

    def __init__(self) -> None:
        super().__init__(mujoco.MjData(model()))

    @staticmethod
    def resting_row() -> Columns:
        """The arm stretched out to the right."""
        return {"qpos": np.zeros(2), "qvel": np.zeros(2)}

    def load(self, row: Mapping[str, np.ndarray]) -> None:
        """Joint angles and velocities; nothing else is state."""
        mujoco.mj_resetData(model(), self.data)
        self.data.qpos[:] = row["qpos"]
        self.data.qvel[:] = row["qvel"]
        mujoco.mj_forward(model(), self.data)

    def state(self) -> Columns:
        """`qpos` and `qvel` [2]: shoulder, wrist."""
        return {"qpos": self.data.qpos.copy(), "qvel": self.data.qvel.copy()}

    def columns(self, goal: Mapping[str, np.ndarray]) -> Columns:
        """The recorded columns, the target being where the finger is at the goal."""
        return self.recorded(finger_position(goal["qpos"]))

    def recorded(self, target: Float[np.ndarray, "2"]) -> Columns:
        """The recorded columns with the hidden target at `target`."""
        state, finger = self.state(), self.finger()
        observation = np.concatenate((state["qpos"], target - finger, state["qvel"]))
        return {
            **state,
            "observation": observation.astype(np.float32),
            "target_pos": np.array(target, np.float64),
            "finger_pos": finger,
        }

    def finger(self) -> Float[np.ndarray, "2"]:
        """(x, y) of the finger in metres."""
        position: np.ndarray = self.data.geom("finger").xpos[:2].copy()
        return position

    def advance(self, action: np.ndarray, goal: Mapping[str, np.ndarray] | None) -> None:
        """Two physics steps under the same torques; the second is left out once the goal is reached."""
        for _ in range(ACTION_REPEAT):
            self.substep(action)
            if goal is not None and self.distance(goal) < 1:
                break

    def substep(self, action: np.ndarray) -> None:
        """One physics step of 0.02 s; MuJoCo clamps the torques to [-1, 1]."""
        self.data.ctrl[:] = action
        # The halves of a step in this order, as dm_control has them: all positions then belong to the new state.
        mujoco.mj_step2(model(), self.data)
        mujoco.mj_step1(model(), self.data)

    def distance(self, goal: Mapping[str, np.ndarray]) -> float:
        """The larger joint error in units of its tolerance."""
        return float(np.abs(self.data.qpos - goal["qpos"]).max() / JOINT_TOLERANCE)
