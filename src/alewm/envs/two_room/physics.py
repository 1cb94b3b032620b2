"""Two-Room's geometry and dynamics: positions in, positions out, no drawing and no randomness.

Positions are float32 pixels, x to the right and y down. Only additions, multiplications, comparisons, divisions and
square roots occur, one rounding each, so that a batch of one, a batch of thousands, a CPU and a GPU agree in every bit.
"""

import torch

from alewm.shapes import Bool, Float, Tensor

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
