"""Cube's simulated world: OGBench's control, one MuJoCo state per episode, and what is measured of it.

As in OGBench, positions of sites and bodies after a step are those before its last physics step, 2 ms old: the next
target pose, the recorded effector and the picture are taken from these. Loading a row computes them afresh, and
starts the constraint solver from nothing. So what follows a restored state is close to the original, not equal.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from alewm.envs.cube import scene as scenes
from alewm.envs.offscreen import mujoco
from alewm.envs.simulated import Columns, Simulator
from alewm.shapes import Float, UInt8

SUCCESS_DISTANCE = 0.04
"""Metres between the centres of cube and target, height included, up to and including which the goal is reached."""

_WORDS = "privileged/target_task"  # the one column that is text, and the same in every row


class CubeSimulator(Simulator):
    """One world; all worlds of a process share the scene and the camera."""

    def __init__(self) -> None:
        self._data = mujoco.MjData(scenes.scene().model)
        super().__init__()

    @staticmethod
    def resting_row() -> Columns:
        """The arm folded as OGBench begins, the cube in the middle of its area."""
        qpos = np.zeros(scenes.NUM_QPOS)
        qpos[:6] = scenes.scene().arm_at_home()
        qpos[scenes.CUBE_POSITION] = (0.425, 0.0, scenes.CUBE_HEIGHT)
        qpos[scenes.CUBE_QUATERNION] = (1.0, 0.0, 0.0, 0.0)
        return {"qpos": qpos, "qvel": np.zeros(scenes.NUM_QVEL)}

    def load(self, row: Mapping[str, np.ndarray]) -> None:
        """Positions and velocities; controls, time and the solver's memory begin at zero."""
        model = scenes.scene().model
        mujoco.mj_resetData(model, self._data)
        self._data.qpos[:] = row["qpos"]
        self._data.qvel[:] = row["qvel"]
        mujoco.mj_forward(model, self._data)
        self._previous = (self._data.qpos.copy(), self._data.qvel.copy())

    def state(self) -> Columns:
        """`qpos` [21] and `qvel` [20]."""
        return {"qpos": self._data.qpos.copy(), "qvel": self._data.qvel.copy()}

    def columns(self, goal: Mapping[str, np.ndarray]) -> Columns:
        """The recorded columns, the target being the cube of the goal."""
        return self.recorded(goal["qpos"][scenes.CUBE_POSITION], goal["qpos"][scenes.CUBE_QUATERNION])

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
        return float(np.linalg.norm(self._data.qpos[scenes.CUBE_POSITION] - target))

    def advance(self, action: np.ndarray, goal: Mapping[str, np.ndarray] | None) -> None:
        """One control step of 0.05 s towards a pose relative to the present one."""
        scene = self._scene()
        scene.set_control(np.asarray(action, np.float64))
        self._previous = (self._data.qpos.copy(), self._data.qvel.copy())
        scene.advance()

    def draw(self) -> UInt8[np.ndarray, "native native 3"]:
        """The scene from the front, without a target."""
        return scenes.camera()(self._data)

    def distance(self, goal: Mapping[str, np.ndarray]) -> float:
        """Metres from the cube's centre to that of the goal's."""
        return self.cube_distance(goal["qpos"][scenes.CUBE_POSITION])

    def _scene(self) -> scenes.CubeScene:
        return scenes.scene().of(self._data, self._previous)
