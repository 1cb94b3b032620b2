"""Reacher: a two-link arm is swung, by torques alone, to the joint angles of a picture.

The arm is dm_control's model file, stepped and drawn with plain MuJoCo. Two things differ from what the file says. The
target's material is transparent, so that no picture shows a goal. And the constraint solver starts from scratch in
every step, instead of from its last solution: that is no part of a recorded state, so with it an episode continued from
a row would differ from the original in the last digits whenever the wrist is at its limit.

Data are uniform random torques, independent at every step, for 200 steps. Every episode has its own random stream,
keyed by (seed, episode index). It yields, in this order, the start, the hidden target and all actions, so that an
episode's bytes depend on nothing else.
"""

import importlib.resources
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch

from alewm.envs.batched_drawing import MujocoSimulator
from alewm.envs.contract import GoalEnv, Row, VectorGoalEnv
from alewm.envs.offscreen import OffscreenCamera, mujoco
from alewm.envs.recording import episode_stream, full_length_episode
from alewm.envs.simulated import Columns, Drawing, Film, SimulatedVectorEnv, Simulator
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

CAMERA = "fixed"


@cache
def model() -> Any:
    """The compiled model, one per process."""
    path = importlib.resources.files("dm_control") / "suite" / "reacher.xml"
    compiled = mujoco.MjModel.from_xml_path(str(path))
    compiled.material("target").rgba[3] = 0
    compiled.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_WARMSTART
    return compiled


@cache
def _finger() -> int:
    """The number of the finger among the geoms: looking it up by name takes as long as half a physics step."""
    return int(model().geom("finger").id)


@cache
def camera(shadow_size: int = 0) -> OffscreenCamera:
    """What draws the model, one per process and size of the shadow map: it looks straight down from 0.75 m."""
    return OffscreenCamera(model(), CAMERA, IMAGE_SIZE, shadow_size)


def finger_position(qpos: Float[np.ndarray, "2"]) -> Float[np.ndarray, "2"]:
    """(x, y) in metres of the finger at the joint angles `qpos`."""
    angles = np.cumsum(qpos)
    return LINK_LENGTH * np.array([np.cos(angles).sum(), np.sin(angles).sum()])


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
        position: np.ndarray = self.data.geom_xpos[_finger(), :2].copy()
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


MAX_STEPS = 200
"""Environment steps of every episode; it has a row more."""

_TARGET_DISTANCES = (0.05, 0.20)
_REWARD_DISTANCE = TARGET_RADIUS + 0.01  # the finger has a radius too
_SCORE_SCALE = 1000.0


def sample_start(generator: np.random.Generator) -> dict[str, np.ndarray]:
    """A row at rest: the shoulder anywhere in (-π, π), the wrist anywhere within its limits."""
    shoulder = generator.uniform(-np.pi, np.pi)
    wrist = generator.uniform(-WRIST_LIMIT, WRIST_LIMIT)
    return {"qpos": np.array([shoulder, wrist]), "qvel": np.zeros(2)}


def sample_target(generator: np.random.Generator) -> np.ndarray:
    """(x, y) of a hidden target: its radius uniform from 5 to 20 cm, its angle uniform."""
    angle, radius = generator.uniform(0, 2 * np.pi), generator.uniform(*_TARGET_DISTANCES)
    return radius * np.array([np.sin(angle), np.cos(angle)])


def collect_episodes(
    seed: int,
    episode_indices: Iterable[int],
    *,
    image_size: int = IMAGE_SIZE,
    max_steps: int = MAX_STEPS,
    draw_every: int = 1,
    device: torch.device | str = "cpu",
    drawing: Drawing = Drawing(),  # noqa: B008 (frozen)
) -> Iterator[dict[str, np.ndarray]]:
    """Finished episodes in the order asked for, with `pixels` uint8 [T, Y, X, 3] unless `draw_every` is 0.

    `qpos`, `qvel`, `observation` (qpos, from finger to target, qvel), `target_pos` and `finger_pos` describe the state,
    `reward` counts the physics steps of a row in which the finger touched the hidden target, `score` is their sum so
    far by 1000, and `success` is NaN, as there is no goal.
    """
    for index in episode_indices:
        film = Film(ReacherSimulator, drawing, image_size=image_size, device=device, draw_every=draw_every)
        yield film.with_pixels(_episode(seed, index, max_steps, film))


def _episode(seed: int, index: int, max_steps: int, film: Film) -> dict[str, np.ndarray]:
    stream = episode_stream(seed, index)
    start, target = sample_start(stream), sample_target(stream)
    actions = stream.uniform(-1, 1, (max_steps, 2)).astype(np.float32)
    arm = ReacherSimulator()
    arm.load(start)
    rows, rewards = [arm.recorded(target)], []
    film.shoot(arm)
    for action in actions:
        touches = 0
        for _ in range(ACTION_REPEAT):
            arm.substep(action)
            apart = target - arm.finger()
            touches += math.sqrt(apart.dot(apart)) <= _REWARD_DISTANCE
        rows.append(arm.recorded(target))
        rewards.append(float(touches))
        film.shoot(arm)
    columns = full_length_episode(rows, list(actions), rewards)
    score = np.concatenate(([0.0], np.cumsum(rewards))) / _SCORE_SCALE
    return {**columns, "score": score, "success": np.full(len(rows), np.nan)}


class ReacherVectorEnv(SimulatedVectorEnv):
    """A batch of Reacher episodes; the environment itself is described at `ReacherEnv`."""

    simulator_class: ClassVar[type[Simulator]] = ReacherSimulator
    native_size: ClassVar[int] = IMAGE_SIZE
    action_dim: ClassVar[int] = 2
    clamps_actions: ClassVar[bool] = True
    state_shapes: ClassVar[Mapping[str, tuple[int, ...]]] = {"qpos": (2,), "qvel": (2,)}
    success_distance: ClassVar[float] = 1.0


class ReacherEnv(GoalEnv):
    """A two-link arm on a table is swung to the joint angles shown in a picture, by torques alone.

    ## Observation
    A dictionary of two images, uint8 [224, 224, 3]: `pixels`, the arm now, and `goal`, the arm at the goal's angles.
    Camera 0 of dm_control's reacher model, straight above, drawn by MuJoCo with shadows and four samples per pixel: a
    dark blue floor with lighter borders, a pale root in the middle, two orange links and a finger beyond a small gap.
    No target is drawn. `image_size` gives exact area averages of that picture.

    ## State
    `qpos` and `qvel`, float64 [2] each: shoulder and wrist, in radians and radians per second. A state or a goal is
    loaded from these columns. The shoulder turns without limit and is not wrapped; the wrist is held within ±160° by a
    soft limit. `info` holds also `finger_pos` and `target_pos` (x and y in metres; the target is where the finger is at
    the goal's angles), `observation` (float32: qpos, from finger to target, qvel) and `success`.

    ## Action
    Two torques in [-1, 1], beyond which they saturate; the joints feel 0.05 Nm at 1. A step is two physics steps of
    0.02 s under the same torques.

    ## Start
    The arm at rest, the shoulder uniform in (-π, π), the wrist uniform within its limits; the goal is drawn likewise.

    ## Reward and success
    The reward is always 0. Success is both joints strictly within 0.05 rad of the goal's, whatever the velocities; a
    shoulder a full turn away is a failure although the picture is the same. `distance` is the larger error divided by
    0.05 rad, so success is a distance below 1.

    ## End
    Success is looked at after each of the two physics steps, and the second is left out after it. An episode terminates
    after a step that ends in success. The registered environment is cut after 200 steps.

    ## Differences from the public version
    - The constraint solver is not started from its last solution (`alewm.envs.reacher`), so that an episode
      continued from a recorded row repeats the original bit for bit. Away from the wrist's limit nothing changes;
      at it, states agree to about nine digits.
    - The public version's target is a point that has nothing to do with the goal. Here `target_pos` belongs to the
      goal, except in collected files, which hold a hidden point drawn as there.
    - The public version resets itself in the step after a success; this one goes on.

    ## Versions
    - v1: first version.
    """

    metadata = {**GoalEnv.metadata, "render_fps": 25}  # noqa: RUF012 (Gymnasium declares it without ClassVar)

    vector_class: ClassVar[type[VectorGoalEnv]] = ReacherVectorEnv

    def sample_episode(self, generator: np.random.Generator) -> tuple[Row, Row]:
        """A start row and a goal row, both arms at rest."""
        return sample_start(generator), sample_start(generator)
