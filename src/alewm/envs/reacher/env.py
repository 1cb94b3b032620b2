"""Reacher as a vector environment and as a Gymnasium environment."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from alewm.envs.contract import GoalEnv, Row
from alewm.envs.reacher import behaviour, physics
from alewm.envs.simulated import SimulatedVectorEnv, Simulator


class ReacherVectorEnv(SimulatedVectorEnv):
    """A batch of Reacher episodes; the environment itself is described at `ReacherEnv`."""

    simulator_class: ClassVar[type[Simulator]] = physics.ReacherSimulator
    native_size: ClassVar[int] = physics.IMAGE_SIZE
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
    - The constraint solver is not started from its last solution (`alewm.envs.reacher.physics`), so that an episode
      continued from a recorded row repeats the original bit for bit. Away from the wrist's limit nothing changes;
      at it, states agree to about nine digits.
    - The public version's target is a point that has nothing to do with the goal. Here `target_pos` belongs to the
      goal, except in collected files, which hold a hidden point drawn as there.
    - The public version resets itself in the step after a success; this one goes on.

    ## Versions
    - v1: first version.
    """

    metadata = {**GoalEnv.metadata, "render_fps": 25}  # noqa: RUF012 (Gymnasium declares it without ClassVar)

    def __init__(
        self,
        *,
        image_size: int = physics.IMAGE_SIZE,
        render_mode: str | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(ReacherVectorEnv(1, device=device, image_size=image_size), render_mode=render_mode)

    def sample_episode(self, generator: np.random.Generator) -> tuple[Row, Row]:
        """A start row and a goal row, both arms at rest."""
        return behaviour.sample_start(generator), behaviour.sample_start(generator)
