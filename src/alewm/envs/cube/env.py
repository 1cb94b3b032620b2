"""Cube as a vector environment and as a Gymnasium environment."""

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from alewm.envs.contract import GoalEnv, Row
from alewm.envs.cube import behaviour, physics
from alewm.envs.simulated import SimulatedVectorEnv, Simulator
from alewm.errors import InputError
from alewm.shapes import Tensor


class CubeVectorEnv(SimulatedVectorEnv):
    """A batch of Cube episodes; the environment itself is described at `CubeEnv`."""

    simulator_class: ClassVar[type[Simulator]] = physics.CubeSimulator
    native_size: ClassVar[int] = physics.IMAGE_SIZE
    action_dim: ClassVar[int] = 5
    clamps_actions: ClassVar[bool] = False
    state_shapes: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "qpos": (physics.NUM_QPOS,),
        "qvel": (physics.NUM_QVEL,),
    }
    # Success is up to and including the limit, and the contract says strictly below.
    success_distance: ClassVar[float] = math.nextafter(physics.SUCCESS_DISTANCE, math.inf)
    restores_exactly: ClassVar[bool] = False

    def _check_values(self, rows: dict[str, Tensor], role: str) -> None:
        is_nowhere = (rows["qpos"][:, physics.CUBE_QUATERNION] == 0).all(-1)
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
      recorded episode (`alewm.envs.cube.physics`).
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

    def __init__(
        self,
        *,
        image_size: int = physics.IMAGE_SIZE,
        render_mode: str | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(CubeVectorEnv(1, device=device, image_size=image_size), render_mode=render_mode)

    def sample_episode(self, generator: np.random.Generator) -> tuple[Row, Row]:
        """A start row and a goal row, both arms at rest."""
        return behaviour.sample_start(generator), behaviour.sample_start(generator)
