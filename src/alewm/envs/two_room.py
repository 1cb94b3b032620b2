"""Two-Room: a dot, a wall, a door. Its geometry and dynamics, its image, and its environments.

**Dynamics.** Positions are float32 pixels, x to the right and y down. Only additions, multiplications, comparisons,
divisions and square roots occur, one rounding each, so that a batch of one, a batch of thousands, a CPU and a GPU agree
in every bit.

**Image.** A fixed black and white arena, and one soft red dot blended onto it. The definition. With p = (px, py) the
dot's position and s = 7,

    a(x, y) = exp(-((x - px)² + (y - py)²) / 2s²), divided by its largest value over the pixels, as float32,
    pixel   = old · (1 - a) + (255, 0, 0) · a, in float32, truncated to uint8.

The computation gives the same bytes from a small patch around the dot, because

- the division cancels the dot's sub-pixel offset. With c the nearest pixel, f = p - c and j the offset from c, one axis
  contributes exp((2jf - j²) / 2s²), which is exactly 1 at j = 0, where the maximum over the pixels lies;
- that factor is a tabulated exp(-j² / 2s²) times exp(jf / s²), a short Taylor polynomial since |f| ≤ 1/2. Its float64
  products and sums round identically everywhere, which exp itself does not: library exponentials differ between
  devices, and on one CPU between the vectorised part of an array and its tail;
- a pixel keeps its old value when 1 - a rounds to 1, that is when a ≤ 2⁻²⁵. Down to there a dot on white shows,
  because truncation turns 254.99998 into 254. So it reaches |2jf - j²| < 2s² · 25 ln 2, about 1,698: j = 41 for every
  f, never 42. `PATCH_RADIUS` is that, and a test draws the whole image to compare.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from alewm.envs.contract import GoalEnv, Row, VectorGoalEnv
from alewm.errors import InputError
from alewm.resize import area_average, area_weights, check_image_size, granule
from alewm.shapes import Bool, Float, Int, Tensor, UInt8

IMAGE_SIZE = 224
"""Pixels per side of the arena and of the native image; pixel (row y, column x) is centred on (x, y)."""

FRAME_FIRST, FRAME_LAST = 10, 13
"""Rows and columns the frame's lines occupy, counted from the top or left; the other two are 210 to 213."""

WALL_FIRST, WALL_LAST = 107, 117
"""Columns of the wall between the rooms."""

DOOR_FIRST, DOOR_LAST = 35, 63
"""Rows at which the wall is open."""

CENTRE_X = 112.0
"""Where the rooms meet: x below is the left room, x at or above it the right one."""

DOOR_CENTRE = (112.0, 49.0)
"""(x, y) of the middle of the door."""

DOT_RADIUS = 7.0
"""The dot's size for collisions, and the standard deviation of its soft image."""

STEP_PIXELS = 5.0
"""How far an action of 1 moves the dot along its axis."""

SUCCESS_DISTANCE = 16.0
"""The target is reached strictly within this many pixels."""

POSITION_LOW, POSITION_HIGH = 14.0, 209.0
"""Positions a dot or a target can be given: inside the frame. A move ends at least a radius inside it."""

_MOVE_LOW, _MOVE_HIGH = 21.0, 203.0
_DOOR_LOW, _DOOR_HIGH = 33.25, 64.75  # a quarter of the radius beyond the door's rows, 49 ± (14 + 1.75)
BLOCKED_LOW, BLOCKED_HIGH = 100.0, 124.0
"""x at which a dot touches the wall from the left and from the right."""
_PUSH_BACK = 0.5


def move(position: Float[Tensor, "*batch 2"], action: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch 2"]:
    """Where each dot is one step later.

    The action is clamped component-wise to [-1, 1] and the destination to the frame. A destination beyond the wall's
    face and outside the door band is put back before the face, on the side the dot came from; y is kept, so that the
    dot slides along the wall. Only the destination's y decides whether the door is open.
    """
    destination = (position + STEP_PIXELS * action.clamp(-1, 1)).clamp(_MOVE_LOW, _MOVE_HIGH)
    x, y = destination.unbind(-1)
    blocked = (y < _DOOR_LOW) | (y > _DOOR_HIGH)
    left = is_left(position)
    x = x.masked_fill(blocked & left & (x > BLOCKED_LOW), BLOCKED_LOW - _PUSH_BACK)
    x = x.masked_fill(blocked & ~left & (x < BLOCKED_HIGH), BLOCKED_HIGH + _PUSH_BACK)
    return torch.stack((x, y), -1)


def is_left(position: Float[Tensor, "*batch 2"]) -> Bool[Tensor, "*batch"]:
    """Whether each position belongs to the left room."""
    return position[..., 0] < CENTRE_X


def distance(position: Float[Tensor, "*batch 2"], other: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch"]:
    """Euclidean distance in pixels."""
    dx, dy = (position - other).unbind(-1)
    # Written out: library norms choose their order of operations by shape and device.
    return (dx * dx + dy * dy).sqrt()


def recorded_columns(position: Float[Tensor, "*batch 2"], target: Float[Tensor, "*batch 2"]) -> dict[str, Tensor]:
    """What a data file records of a state besides pixels and actions.

    `proprio` and `state` are the dot's (x, y), `goal_state` the target's; `observation` is [x, y, target x, target y,
    door x, door y, 0, 0, 0, 0], with room for three doors; `distance_to_target` is in pixels.
    """
    doors = position.new_tensor([*DOOR_CENTRE, 0, 0, 0, 0]).expand(*position.shape[:-1], 6)
    return {
        "proprio": position,
        "state": position,
        "goal_state": target,
        "observation": torch.cat((position, target, doors), -1),
        "distance_to_target": distance(position, target),
    }


_MIN_PATH_STEPS = 25  # of full speed, through the door


def sample_start_and_target(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A start and a target position, float32 [2] each, as in the published data.

    The start is uniform inside the frame, off the wall. The target is uniform over what is left of the other room once
    positions with a shorter way than 25 steps through the door are excluded.
    """
    start = _uniform_off_wall(generator)
    door = np.array(DOOR_CENTRE)
    to_door = np.linalg.norm(start - door)
    while True:
        target = _uniform_off_wall(generator)
        in_other_room = (start[0] < CENTRE_X) != (target[0] < CENTRE_X)
        path = to_door + np.linalg.norm(door - target)
        if in_other_room and path / STEP_PIXELS >= _MIN_PATH_STEPS:
            return start, target


def _uniform_off_wall(generator: np.random.Generator) -> np.ndarray:
    while True:
        position = generator.uniform(POSITION_LOW, POSITION_HIGH, 2).astype(np.float32)
        if not BLOCKED_LOW <= position[0] <= BLOCKED_HIGH:
            return position


PATCH_RADIUS = 41
"""How far from its nearest pixel the dot can change an image, in pixels."""

_TWO_VARIANCES = 2 * DOT_RADIUS**2
_TAYLOR_DEGREE = 14  # |jf / s²| ≤ 0.42 inside the patch radius: the remainder is below 1e-17
_FRAMES_AT_ONCE = {"cpu": 32}  # what the processor's cache holds; the chunk never changes a frame
_FRAMES_AT_ONCE_ELSEWHERE = 1024  # bounds the memory of a GPU


def background_levels() -> UInt8[Tensor, "Y X"]:
    """The arena without a dot: 255 where it is white, 0 on the wall and the frame (all three channels are equal)."""
    size = IMAGE_SIZE
    levels = torch.full((size, size), 255, dtype=torch.uint8)
    levels[:, WALL_FIRST : WALL_LAST + 1] = 0
    levels[DOOR_FIRST : DOOR_LAST + 1, WALL_FIRST : WALL_LAST + 1] = 255
    for first in (FRAME_FIRST, size - 1 - FRAME_LAST):
        last = first + FRAME_LAST - FRAME_FIRST
        levels[first : last + 1] = 0
        levels[:, first : last + 1] = 0
    return levels


class TwoRoomRenderer:
    """Draws dots at positions, on one device and at one image size."""

    def __init__(self, image_size: int = IMAGE_SIZE, device: torch.device | str = "cpu") -> None:
        native = IMAGE_SIZE
        check_image_size(image_size, native, native)
        self.image_size = image_size
        self.device = torch.device(device)
        # Patches start at whole granules, so that a patch of native pixels becomes a patch of whole small ones.
        self._granule, self._small_granule = granule(native, image_size)
        reach = 2 * PATCH_RADIUS + self._granule
        self._patch_size = min(native, math.ceil(reach / self._granule) * self._granule)

        levels = background_levels()
        self._windows = (
            levels.to(self.device, torch.float32).unfold(0, self._patch_size, 1).unfold(1, self._patch_size, 1)
        )
        self._gaussian = torch.tensor(
            [math.exp(-j * j / _TWO_VARIANCES) for j in range(native)], dtype=torch.float64, device=self.device
        )
        self._offsets = torch.arange(self._patch_size, dtype=torch.float64, device=self.device)
        self._weights: Tensor | None = None
        background = levels
        if image_size != native:
            background = area_average(levels, area_weights(native, self._granule, self._small_granule))
            self._weights = area_weights(self._patch_size, self._granule, self._small_granule).to(self.device)
        self._background = background[..., None].expand(-1, -1, 3).contiguous().to(self.device)

    def __call__(self, positions: Float[Tensor, "B 2"]) -> UInt8[Tensor, "B Y X 3"]:
        """One frame for each position, on this renderer's device."""
        frames = self._background.new_empty(len(positions), self.image_size, self.image_size, 3)
        chunk = _FRAMES_AT_ONCE.get(self.device.type, _FRAMES_AT_ONCE_ELSEWHERE)
        for start in range(0, len(positions), chunk):
            self._draw(positions[start : start + chunk], frames[start : start + chunk])
        return frames

    def _draw(self, positions: Float[Tensor, "B 2"], frames: UInt8[Tensor, "B Y X 3"]) -> None:
        starts, factors = self._axis_factors(positions.to(self.device, torch.float64))
        column, row = starts.unbind(-1)
        alpha = (factors[:, 1, :, None] * factors[:, 0, None, :]).float()
        # The arena is grey and the dot's green and blue are 0, so two channels are enough.
        kept = (1 - alpha).mul_(self._windows[row, column])
        red = alpha.mul_(255).add_(kept).to(torch.uint8)
        other = kept.to(torch.uint8)
        if self._weights is not None:
            red, other = area_average(red, self._weights), area_average(other, self._weights)
            column, row = (start // self._granule * self._small_granule for start in (column, row))
        frames.copy_(self._background)
        paste = paste_by_slices if self.device.type == "cpu" else paste_by_index
        paste(frames, torch.stack((red, other, other), -1), row, column)

    def _axis_factors(self, positions: Float[Tensor, "B 2"]) -> tuple[Int[Tensor, "B 2"], Float[Tensor, "B 2 patch"]]:
        """Where each patch starts along x and y, and exp((2jf - j²) / 2s²) along its pixels."""
        nearest = positions.round()
        starts = (nearest - PATCH_RADIUS).clamp(0, IMAGE_SIZE - self._patch_size)
        starts = (starts / self._granule).floor() * self._granule
        j = (starts - nearest)[..., None] + self._offsets
        exponent = j * (positions - nearest)[..., None] / (_TWO_VARIANCES / 2)
        factors = torch.full_like(exponent, 1 / math.factorial(_TAYLOR_DEGREE))
        for degree in range(_TAYLOR_DEGREE - 1, -1, -1):
            factors.mul_(exponent).add_(1 / math.factorial(degree))
        return starts.long(), factors.mul_(self._gaussian[j.abs().long()])


def paste_by_slices(
    frames: UInt8[Tensor, "B Y X 3"],
    patches: UInt8[Tensor, "B patch patch 3"],
    row: Int[Tensor, "B"],
    column: Int[Tensor, "B"],
) -> None:
    """Write each patch into its frame at (row, column); on a CPU ten times faster than by index."""
    size = patches.shape[1]
    for frame, patch, y, x in zip(frames.numpy(), patches.numpy(), row.tolist(), column.tolist(), strict=True):
        frame[y : y + size, x : x + size] = patch


def paste_by_index(
    frames: UInt8[Tensor, "B Y X 3"],
    patches: UInt8[Tensor, "B patch patch 3"],
    row: Int[Tensor, "B"],
    column: Int[Tensor, "B"],
) -> None:
    """Write each patch into its frame at (row, column), in one launch and without waiting for a GPU."""
    along = torch.arange(patches.shape[1], device=frames.device)
    batch = torch.arange(len(frames), device=frames.device)[:, None, None]
    frames[batch, (row[:, None] + along)[:, :, None], (column[:, None] + along)[:, None, :]] = patches


class TwoRoomVectorEnv(VectorGoalEnv):
    """A batch of Two-Room episodes; the environment itself is described at `TwoRoomEnv`."""

    action_dim: ClassVar[int] = 2
    clamps_actions: ClassVar[bool] = True
    state_shapes: ClassVar[Mapping[str, tuple[int, ...]]] = {"proprio": (2,)}
    success_distance: ClassVar[float] = SUCCESS_DISTANCE

    def __init__(self, num_envs: int, *, device: torch.device | str = "cpu", image_size: int = IMAGE_SIZE) -> None:
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
        columns = recorded_columns(self._position, self._target)
        return {name: values.clone() for name, values in columns.items()}

    def render(self) -> UInt8[Tensor, "B Y X 3"]:
        """Frames with the dots where they are; targets are never drawn."""
        return self._draw(self._position)

    def render_goal(self) -> UInt8[Tensor, "B Y X 3"]:
        """Frames with the dots at their targets."""
        return self._draw(self._target)

    def distance(self) -> Float[Tensor, "B"]:
        """Pixels from dot to target, as the crow flies."""
        return distance(self._position, self._target)

    def _set_state(self, rows: dict[str, Tensor]) -> None:
        self._position = rows["proprio"]

    def _set_goal(self, rows: dict[str, Tensor]) -> None:
        self._target = rows["proprio"]

    def _advance(self, actions: Float[Tensor, "B action"]) -> None:
        self._position = move(self._position, actions)

    def _check_values(self, rows: dict[str, Tensor], role: str) -> None:
        positions = rows["proprio"]
        outside = ((positions < POSITION_LOW) | (positions > POSITION_HIGH)).any(-1)
        if bool(outside.any()):
            found = positions[outside][0].tolist()
            raise InputError(
                f"Column 'proprio' of the {role} must lie inside the frame, x and y from {POSITION_LOW:g} to "
                f"{POSITION_HIGH:g}, got {found}."
            )


class TwoRoomEnv(GoalEnv):
    """A dot walks from one room to another through a door, seen from above.

    ## Observation
    A dictionary of two images, uint8 [224, 224, 3]: `pixels`, the arena now, and `goal`, the arena with the dot on the
    target. White floor; black frame (lines of 4 pixels, 10 to 13 and 210 to 213, run to the image's edges) and wall
    (columns 107 to 117) with a door (rows 35 to 63); the dot is a red Gaussian of standard deviation 7. The target
    is not drawn. `image_size` gives smaller images of the same arena: exact area averages of the 224-pixel drawing
    (`alewm.resize`); states, actions and distances stay in native pixels. How exactly a frame is computed:
    `alewm.envs.two_room`.

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
    The dot is uniform on [14, 209]², but not at 100 ≤ x ≤ 124. The target is uniform in the other room, again off the
    wall, with a way through the door's centre of at least 125 pixels (25 steps).

    ## Reward and success
    The reward is always 0. Success is a distance to the target strictly below 16 pixels.

    ## End
    An episode terminates after a step that ends in success (never before the first). The registered environment is cut
    after 100 steps.

    ## Versions
    - v1: first version.
    """

    vector_class: ClassVar[type[VectorGoalEnv]] = TwoRoomVectorEnv

    def sample_episode(self, generator: np.random.Generator) -> tuple[Row, Row]:
        """A start row and a goal row, in different rooms."""
        start, target = sample_start_and_target(generator)
        return {"proprio": start}, {"proprio": target}
