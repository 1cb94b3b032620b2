"""Two-Room as a vector environment and as a Gymnasium environment."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from alewm.envs.contract import GoalEnv, Row, VectorGoalEnv
from alewm.envs.two_room import behaviour, physics
from alewm.envs.two_room.render import TwoRoomRenderer
from alewm.errors import InputError, unknown_name
from alewm.shapes import Float, Tensor, UInt8

TARGET_RULES = ("anywhere", "other-room")
"""Where targets may lie: `other-room` made the published data; `anywhere` includes the same room and the wall."""


class TwoRoomVectorEnv(VectorGoalEnv):
    """A batch of Two-Room episodes; the environment itself is described at `TwoRoomEnv`."""

    action_dim: ClassVar[int] = 2
    clamps_actions: ClassVar[bool] = True
    state_shapes: ClassVar[Mapping[str, tuple[int, ...]]] = {"proprio": (2,)}
    success_distance: ClassVar[float] = physics.SUCCESS_DISTANCE

    def __init__(
        self, num_envs: int, *, device: torch.device | str = "cpu", image_size: int = physics.IMAGE_SIZE
    ) -> None:
        super().__init__(num_envs, device=device, image_size=image_size)
        self._draw = TwoRoomRenderer(image_size, device)
        middle_of_left_room = torch.tensor([60.0, 112.0], device=self.device)
        self._position = middle_of_left_room.expand(num_envs, 2)
        self._target = self._position

    def state(self) -> dict[str, Tensor]:
        """The dots' positions as `proprio` [B, 2]."""
        return {"proprio": self._position.clone()}

    def goal(self) -> dict[str, Tensor]:
        """The targets' positions as `proprio` [B, 2]: a goal is a row in which the dot was there."""
        return {"proprio": self._target.clone()}

    def columns(self) -> dict[str, Tensor]:
        """`proprio`, `state`, `goal_state`, `observation` and `distance_to_target`."""
        columns = physics.recorded_columns(self._position, self._target)
        return {name: values.clone() for name, values in columns.items()}

    def render(self) -> UInt8[Tensor, "B Y X 3"]:
        """Frames with the dots where they are; targets are never drawn."""
        return self._draw(self._position)

    def render_goal(self) -> UInt8[Tensor, "B Y X 3"]:
        """Frames with the dots at their targets."""
        return self._draw(self._target)

    def distance(self) -> Float[Tensor, "B"]:
        """Pixels from dot to target, as the crow flies."""
        return physics.distance(self._position, self._target)

    def _set_state(self, rows: dict[str, Tensor]) -> None:
        self._position = rows["proprio"]

    def _set_goal(self, rows: dict[str, Tensor]) -> None:
        self._target = rows["proprio"]

    def _advance(self, actions: Float[Tensor, "B action"]) -> None:
        self._position = physics.move(self._position, actions)

    def _check_values(self, rows: dict[str, Tensor], role: str) -> None:
        positions = rows["proprio"]
        outside = ((positions < physics.POSITION_LOW) | (positions > physics.POSITION_HIGH)).any(-1)
        if bool(outside.any()):
            found = positions[outside][0].tolist()
            raise InputError(
                f"Column 'proprio' of the {role} must lie inside the frame, x and y from {physics.POSITION_LOW:g} to "
                f"{physics.POSITION_HIGH:g}, got {found}."
            )


class TwoRoomEnv(GoalEnv):
    """A dot walks from one room to another through a door, seen from above.

    ## Observation
    A dictionary of two images, uint8 [224, 224, 3]: `pixels`, the arena now, and `goal`, the arena with the dot on the
    target. White floor; black frame (lines of 4 pixels, 10 to 13 and 210 to 213, run to the image's edges) and wall
    (columns 107 to 117) with a door (rows 35 to 63); the dot is a red Gaussian of standard deviation 7. The target
    is not drawn. `image_size` gives smaller images of the same arena: exact area averages of the 224-pixel drawing
    (`alewm.resize`); states, actions and distances stay in native pixels. How exactly a frame is computed:
    `alewm.envs.two_room.render`.

    ## State
    `proprio`, float32 (x, y), x to the right and y down, each from 14 to 209. A state or a goal is loaded from this
    column; anything else in a row is ignored. `info` holds `proprio`, `state` (the same), `goal_state` (the target),
    `observation` (10 numbers: x, y, target x, target y, 112, 49, four zeros), `distance_to_target` and `success`.

    ## Action
    Two numbers, clamped one by one to [-1, 1]; the dot moves by 5 pixels times the action. No inertia. A move ends
    inside [21, 203] on both axes. One that would end beyond the wall's face (x of 100 from the left, 124 from the
    right) with y outside the door's band (33.25 to 64.75) is put back to x = 99.5 or 124.5, on the side the dot came
    from, keeping y.

    ## Start
    The dot is uniform on [14, 209]², but not at 100 ≤ x ≤ 124. With `target_rule="other-room"`, which made the
    published data, the target is uniform in the other room, again off the wall, with a way through the door's centre of
    at least 125 pixels (25 steps). With `target_rule="anywhere"` it is uniform on [14, 209]².

    ## Reward and success
    The reward is always 0. Success is a distance to the target strictly below 16 pixels.

    ## End
    An episode terminates after a step that ends in success (never before the first). The registered environment is cut
    after 100 steps.

    ## Versions
    - v1: first version.
    """

    def __init__(
        self,
        *,
        image_size: int = physics.IMAGE_SIZE,
        target_rule: str = "other-room",
        render_mode: str | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if target_rule not in TARGET_RULES:
            raise unknown_name("target rule", target_rule, TARGET_RULES)
        super().__init__(TwoRoomVectorEnv(1, device=device, image_size=image_size), render_mode=render_mode)
        self.target_rule = target_rule

    def sample_episode(self, generator: np.random.Generator) -> tuple[Row, Row]:
        """A start row and a goal row under the environment's target rule."""
        start, target = behaviour.sample_start_and_target(generator)
        if self.target_rule == "anywhere":
            target = generator.uniform(physics.POSITION_LOW, physics.POSITION_HIGH, 2).astype(np.float32)
        return {"proprio": start}, {"proprio": target}
