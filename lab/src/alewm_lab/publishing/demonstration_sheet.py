"""A picture of twelve human demonstrations, for the environment's page.

    python -m alewm_lab.publishing.demonstration_sheet pusht.zip docs/images/envs/push-t-demonstrations.png

Each tile is the first frame of a demonstration, with the pusher's way from blue to red and the outline of the block at
every fifteenth step and the last, darker as time goes on. The demonstrations are evenly spaced in the file, not chosen.
"""

import sys
from pathlib import Path

import cv2
import numpy as np

from alewm.envs.push_t import physics
from alewm.envs.push_t.demonstrations import DemonstrationFile, read_demonstrations, relative_demonstrations
from alewm.envs.push_t.physics import PushTWorld
from alewm.envs.push_t.render import shared_renderer
from alewm.shapes import UInt8

TILES = (3, 4)
"""Rows and columns."""

_GAP = 8
_OUTLINE_EVERY = 15
_FIRST, _LAST = np.array([65.0, 105.0, 225.0]), np.array([214.0, 60.0, 50.0])  # of the pusher's way
_SHIFT = 4  # OpenCV's coordinates in sixteenths of a pixel


def sheet(file: DemonstrationFile) -> UInt8[np.ndarray, "Y X 3"]:
    """Twelve demonstrations of `file`, or as many as it has, in a grid on white."""
    rows, columns = TILES
    count = min(rows * columns, len(file.ends))
    numbers = sorted({round(number) for number in np.linspace(0, len(file.ends) - 1, count)})
    size = physics.IMAGE_SIZE
    side = size + _GAP
    picture = np.full((rows * side - _GAP, columns * side - _GAP, 3), 255, np.uint8)
    for place, number in enumerate(numbers):
        row, column = divmod(place, columns)
        picture[row * side :, column * side :][:size, :size] = _tile(file, number)
    return picture


def _tile(file: DemonstrationFile, number: int) -> UInt8[np.ndarray, "Y X 3"]:
    (demonstration,) = relative_demonstrations(file, [number])
    world = PushTWorld(demonstration.start)
    tile = shared_renderer()(world.state(), world.contacts()).copy()
    scale = physics.IMAGE_SIZE / physics.ARENA_SIZE * (1 << _SHIFT)
    states = file.states[file.rows_of(number)].astype(np.float64)
    shares = np.linspace(0, 1, len(states))
    for step in (*range(_OUTLINE_EVERY, len(states) - 1, _OUTLINE_EVERY), len(states) - 1):
        corners = physics.placed(np.array(physics.OUTLINE), states[step, 2:4], float(states[step, 4]))
        shade = np.full(3, 190 - 150 * shares[step])
        _line(tile, corners * scale, shade, closed=True)
    for step in range(len(states) - 1):
        colour = (1 - shares[step]) * _FIRST + shares[step] * _LAST
        _line(tile, states[step : step + 2, :2] * scale, colour, closed=False)
    return tile


def _line(tile: np.ndarray, points: np.ndarray, colour: np.ndarray, *, closed: bool) -> None:
    cv2.polylines(tile, [points.round().astype(np.int32)], closed, colour.round().tolist(), 1, cv2.LINE_AA, _SHIFT)


if __name__ == "__main__":
    from PIL import Image

    source, out = map(Path, sys.argv[1:])
    # 64 colours look the same here, and are a third of the bytes.
    Image.fromarray(sheet(read_demonstrations(source))).quantize(64).save(out, optimize=True)
    print(out)
