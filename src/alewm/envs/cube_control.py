"""OGBench's description of a state, its control and its plans for Cube: the same numbers to the last bit, sooner.

OGBench makes an object of arrays for every rotation, looks joints up by name, and describes a state anew for everyone
who asks. That took longer than half of what MuJoCo takes for the 25 physics steps of a row. Here rotations are four
Python floats (w, x, y, z), added and multiplied in OGBench's order, which gives what NumPy gives. What a processor may
round in its own way (sine, cosine, arc tangent, products of matrices) is left to the functions that OGBench calls.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from alewm.envs.offscreen import mujoco
from alewm.shapes import Float

# After `offscreen`, which chooses the back end that these look for when they are imported.
from ogbench.manipspace.controllers import DiffIKController  # isort: skip
from ogbench.manipspace.envs.cube_env import CubeEnv as OGBenchCube  # isort: skip
from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle  # isort: skip
from ogbench.manipspace.oracles.plan.plan_oracle import gaussian_filter1d, interp1d  # isort: skip

CUBE_POSITION, CUBE_QUATERNION = slice(14, 17), slice(17, 21)
"""Where the cube's pose is in qpos."""

Rotation = Sequence[float]
"""(w, x, y, z)."""

_OPEN_RADIANS = 0.8
_FULL_CONTACT_NEWTONS = 50.0
_CENTRE, _LENGTHS, _OPENINGS = np.array([0.425, 0.0, 0.0]), 10.0, 3.0
"""What an observation's positions are relative to, and the factors of its lengths and of the gripper's opening."""


def product(left: Rotation, right: Rotation) -> Rotation:
    """First `right`, then `left`."""
    w0, x0, y0, z0 = left
    w1, x1, y1, z1 = right
    return (
        -x0 * x1 - y0 * y1 - z0 * z1 + w0 * w1,
        x0 * w1 + y0 * z1 - z0 * y1 + w0 * x1,
        -x0 * z1 + y0 * w1 + z0 * x1 + w0 * y1,
        x0 * y1 - y0 * x1 + z0 * w1 + w0 * z1,
    )


def inverse(rotation: Rotation) -> Rotation:
    """The rotation back."""
    w, x, y, z = rotation
    return w, -x, -y, -z


def about_z(angle: float) -> Rotation:
    """A turn about the vertical."""
    squared = angle * angle
    if squared < 1e-10:
        fourth = squared * squared
        real = 1.0 - squared / 8.0 + fourth / 384.0
        factor = 0.5 - squared / 48.0 + fourth / 3840.0
    else:
        size = math.sqrt(squared)
        real, factor = float(np.cos(0.5 * size)), float(np.sin(0.5 * size)) / size
    return real, factor * 0.0, factor * 0.0, factor * angle


def yaw_of(rotation: Rotation) -> float:
    """The turn about the vertical in a rotation, radians."""
    w, x, y, z = rotation
    return float(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y**2 + z**2)))


def _turned(rotation: Rotation, point: Sequence[float]) -> tuple[float, float, float]:
    _, x, y, z = product(product(rotation, (0.0, *point)), inverse(rotation))
    return x, y, z


def _clipped(value: float, low: float, high: float) -> float:
    """As `np.clip`: in this order NaN stays NaN."""
    return min(max(value, low), high)


def observation_of(known: Mapping[str, Any]) -> Float[np.ndarray, "28"]:
    """OGBench's observation of the state that it describes as `known`."""
    effector_yaw, block_yaw = known["proprio/effector_yaw"], known["privileged/block_0_yaw"]
    return np.concatenate(
        (
            known["proprio/joint_pos"],
            known["proprio/joint_vel"],
            (known["proprio/effector_pos"] - _CENTRE) * _LENGTHS,
            np.cos(effector_yaw),
            np.sin(effector_yaw),
            known["proprio/gripper_opening"] * _OPENINGS,
            known["proprio/gripper_contact"],
            (known["privileged/block_0_pos"] - _CENTRE) * _LENGTHS,
            known["privileged/block_0_quat"],
            np.cos(block_yaw),
            np.sin(block_yaw),
        )
    )


class InverseKinematics(DiffIKController):  # type: ignore[misc]
    """OGBench's, for its one site and without a preferred pose."""

    def solve(
        self,
        pos: np.ndarray,
        quat: np.ndarray,
        curr_qpos: np.ndarray,
        max_iters: int = 20,
        pos_thresh: float = 1e-4,
        ori_thresh: float = 1e-4,
    ) -> Float[np.ndarray, "6"]:
        """Joint angles near `curr_qpos` at which the site is at the pose."""
        model, data, site = self._model, self._data, int(self._site_ids[0])
        error, apart = self._err[0], self._err_quat[0]
        is_turned, is_turned_back = self._site_quat[0], self._site_quat_inv[0]
        data.qpos[:] = curr_qpos
        for _ in range(max_iters):
            mujoco.mj_kinematics(model, data)
            error[:3] = pos - data.site_xpos[site]
            mujoco.mju_mat2Quat(is_turned, data.site_xmat[site])
            mujoco.mju_negQuat(is_turned_back, is_turned)
            mujoco.mju_mulQuat(apart, quat, is_turned_back)
            mujoco.mju_quat2Vel(error[3:], apart, 1.0)
            shift, turn = error[:3], error[3:]
            if math.sqrt(shift.dot(shift)) <= pos_thresh and math.sqrt(turn.dot(turn)) <= ori_thresh:
                break
            mujoco.mj_comPos(model, data)  # which only the Jacobian needs
            mujoco.mj_jacSite(model, data, self._jac[:3], self._jac[3:], site)
            self._integrate(self._scale_update(self._solve()))
        found: np.ndarray = data.qpos.copy()
        return found


class LeanCube(OGBenchCube):  # type: ignore[misc]
    """OGBench's environment with one cube and states as observations."""

    _ik: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(env_type="single", ob_type="states", **options)
        self._ik = InverseKinematics(self._ik._model, sites=["attachment_site"])

    def post_compilation(self) -> None:
        """Remembers what each step would look up."""
        super().post_compilation()
        # The middle phase saves pairs of geoms that are too far apart, and costs more than it saves with so few geoms
        # per body. Contacts and their order are the same without it.
        self._model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE.value
        self._right_pad = int(self._model.body("ur5e/robotiq/right_pad").id)
        self._down = self._effector_down_rotation.wxyz.tolist()
        self._pinch_to_flange = self._T_pa.rotation().wxyz.tolist(), self._T_pa.translation().tolist()

    def set_control(self, action: Float[np.ndarray, "5"]) -> None:
        """Controls that move the gripper by `action`."""
        data = self._data
        *move, turn, closing = self.unnormalize_action(action).tolist()
        wanted = product(product(about_z(turn), about_z(self._effector_yaw())), inverse(self._down))
        rotation = product(about_z(_clipped(yaw_of(wanted), -math.pi, math.pi)), self._down)
        place = [
            _clipped(now + change, low, high)
            for now, change, low, high in zip(
                data.site_xpos[self._pinch_site_id].tolist(), move, *self._workspace_bounds.tolist(), strict=True
            )
        ]
        pinch_turned, pinch_moved = self._pinch_to_flange
        arm = self._ik.solve(
            pos=np.add(_turned(rotation, pinch_moved), place),
            quat=np.array(product(rotation, pinch_turned)),
            curr_qpos=data.qpos[self._arm_joint_ids],
        )
        data.ctrl[self._arm_actuator_ids] = arm
        data.ctrl[self._gripper_actuator_ids] = 255.0 * _clipped(self._opening() + closing, 0.0, 1.0)

    def compute_ob_info(self) -> dict[str, Any]:
        """OGBench's description of the state and of the target."""
        data, arm, gripper = self._data, self._arm_joint_ids, self._gripper_opening_joint_id
        qpos, qvel = data.qpos.copy(), data.qvel.copy()
        (target,) = self._cube_target_mocap_ids
        force = data.cfrc_ext[self._right_pad]
        return {
            "proprio/joint_pos": qpos[arm],
            "proprio/joint_vel": qvel[arm],
            "proprio/effector_pos": data.site_xpos[self._pinch_site_id].copy(),
            "proprio/effector_yaw": np.array([self._effector_yaw()]),
            "proprio/gripper_opening": np.array([self._opening()]),
            "proprio/gripper_vel": qvel[[gripper]],
            "proprio/gripper_contact": np.array(
                [_clipped(math.sqrt(force.dot(force)) / _FULL_CONTACT_NEWTONS, 0.0, 1.0)]
            ),
            "privileged/block_0_pos": qpos[CUBE_POSITION].copy(),
            "privileged/block_0_quat": qpos[CUBE_QUATERNION].copy(),
            "privileged/block_0_yaw": np.array([yaw_of(qpos[CUBE_QUATERNION].tolist())]),
            "privileged/target_task": self._target_task,
            "privileged/target_block": self._target_block,
            "privileged/target_block_pos": data.mocap_pos[target].copy(),
            "privileged/target_block_yaw": np.array([yaw_of(data.mocap_quat[target].tolist())]),
            "prev_qpos": self._prev_qpos.copy(),
            "prev_qvel": self._prev_qvel.copy(),
            "qpos": qpos,
            "qvel": qvel,
            "control": data.ctrl.copy(),
            "time": np.array([data.time]),
        }

    def _effector_yaw(self) -> float:
        quaternion = np.empty(4)
        mujoco.mju_mat2Quat(quaternion, self._data.site_xmat[self._pinch_site_id])
        return yaw_of(quaternion.tolist())

    def _opening(self) -> float:
        return _clipped(float(self._data.qpos[self._gripper_opening_joint_id]) / _OPEN_RADIANS, 0.0, 1.0)


class LeanPlanOracle(CubePlanOracle):  # type: ignore[misc]
    """OGBench's plan, its moments interpolated together and its rotations once for each stretch between poses."""

    def compute_plan(self, times: list[float], poses: list[Any], grasps: list[float]) -> Float[np.ndarray, "T 5"]:
        """Poses and openings at all steps until the last of `times`, with noise."""
        moments, moment = [], 0.0
        while moment < self._t_max:
            moments.append(moment)
            moment += self._env_dt
        plan = np.zeros((len(moments), 5))
        places = [pose.translation() for pose in poses]
        plan[:, :3] = interp1d(times, places, kind="linear", axis=0, assume_sorted=True)(moments)
        plan[:, 3] = self._yaws(times, [pose.rotation() for pose in poses], moments)
        plan[:, 4] = interp1d(times, grasps, kind="linear", axis=0, assume_sorted=True)(moments)
        if self._noise > 0:
            drawn = np.random.normal(0, 1, size=plan.shape)  # noqa: NPY002 (as OGBench does)
            noise = drawn * np.array([0.05, 0.05, 0.05, 0.3, 1.0]) * self._noise
            plan += gaussian_filter1d(noise, axis=0, sigma=self._noise_smoothing)
        return plan

    def _yaws(self, times: list[float], rotations: list[Any], moments: list[float]) -> list[float]:
        # All rotations of a plan are about the vertical, and so is what lies between two of them.
        turns = [float((a.inverse() @ b).log()[2]) for a, b in pairwise(rotations)]
        starts: list[Rotation] = [rotation.wxyz.tolist() for rotation in rotations]
        yaws = []
        for moment, k in zip(moments, (np.searchsorted(times, moments, side="right") - 1).tolist(), strict=True):
            share = _clipped((moment - times[k]) / (times[k + 1] - times[k]), 0.0, 1.0)
            yaws.append(yaw_of(product(starts[k], about_z(share * turns[k]))))
        return yaws
