"""Push-T's image: flat shapes on a 512-pixel canvas, sampled down to 224 by bilinear interpolation.

The published frames were filled by pygame, without anti-aliasing, and reduced by `cv2.resize` without a low-pass
filter. The shapes are filled by OpenCV here, which needs no window system; where pygame puts a shape's pixels in its
own way, the shape is described so that OpenCV puts them there too:

- a disc of radius r covers 2r pixels, from -r to r - 1;
- a line of width 4 is a parallelogram that reaches from one pixel before the line to two after it, measured along
  the axis the line runs less along;
- a fat segment is such a line, a quadrilateral at plus and minus the rounded normal (made of absolute differences, so
  that it degenerates to a line in two of the four quadrants), and a disc at each end.

From back to front: the anchor, a pale green T that never moves and is not the goal; the block; the pusher; the walls; a
short red line along the normal of every contact, which after the reduction is a faint speck. All points are rounded to
whole pixels first.
"""

import math
from collections.abc import Iterable
from functools import cache

import cv2
import numpy as np

from alewm.envs.push_t import physics
from alewm.envs.push_t.physics import ContactPoint
from alewm.shapes import Float, Int, UInt8

WHITE = (255, 255, 255)
ANCHOR = (144, 238, 144)
BLOCK_FILL, BLOCK_EDGE = (143, 163, 184), (119, 136, 153)
PUSHER_RIM, PUSHER_FILL = (65, 105, 225), (78, 126, 255)
WALL = (211, 211, 211)
CONTACT = (231, 76, 60)

ANCHOR_PLACE, ANCHOR_ANGLE = (256.0, 256.0), math.pi / 4
PUSHER_FILL_RADIUS = 11
EDGE_RADIUS = 2
CONTACT_REACH = 2.0
"""How far a contact's line reaches beyond the points in contact, in pixels."""

_FAR = 1e6  # beyond this every shape is out of sight, and OpenCV's coordinates overflow
_Canvas = UInt8[np.ndarray, "arena arena 3"]
_Corners = Int[np.ndarray, "_ 2"]
_Region = tuple[slice, slice]
_TILE, _SMALL_TILE = 16, 7  # 512 to 224 in lowest terms
_BLOCK_MARGIN = 8  # a contact's line ends at most this far from the block's corners' bounding box


def _disc(radius: int) -> _Corners:
    """Corners of the polygon whose pixels are those of a disc around (0, 0)."""
    rows = np.arange(-radius, radius)
    half_widths = np.floor(np.sqrt(radius**2 - (rows + 0.5) ** 2) + 0.25).astype(np.int32)  # nearest to pygame
    left = np.stack((-half_widths, rows), 1)
    right = np.stack((half_widths - 1, rows), 1)
    return np.concatenate((left, right[::-1])).astype(np.int32)


_DISCS = {radius: _disc(radius) for radius in (EDGE_RADIUS, PUSHER_FILL_RADIUS, int(physics.PUSHER_RADIUS))}
_RECTANGLES = np.array((physics.BAR, physics.STEM)).reshape(-1, 2)
_NEXT = np.array([1, 2, 3, 0, 5, 6, 7, 4])  # each corner's neighbour in its rectangle
_ASIDE = np.array([[0, 1], [1, 0]], np.int32)  # across a line that is rather level, and one that is rather upright
_WALL_CORNERS = np.array(physics.WALLS, np.int32)
_WALL_STRIP = np.full((2 * EDGE_RADIUS + 1, int(np.ptp(_WALL_CORNERS)) + 1, 3), WALL, np.uint8)


class PushTRenderer:
    """Draws states; what does not change from picture to picture is neither drawn nor reduced again.

    A tile of 16 canvas pixels becomes 7 image pixels, and none of these looks beyond its tile. So only the tiles around
    the block and the pusher are restored, drawn and reduced; a test compares with the reduction of the whole.
    """

    def __init__(self) -> None:
        size = physics.ARENA_SIZE
        self._background = np.full((size, size, 3), WHITE, np.uint8)
        for points in _rectangles_at(*ANCHOR_PLACE, ANCHOR_ANGLE).reshape(2, 4, 2):
            cv2.fillConvexPoly(self._background, points, ANCHOR)
        _draw_walls(self._background)
        self._small_background = _reduced(self._background)
        self._canvas = self._background.copy()
        self._drawn: list[_Region] = []

    def __call__(
        self,
        state: Float[np.ndarray, "7"],
        contacts: Iterable[ContactPoint] = (),
        out: UInt8[np.ndarray, "224 224 3"] | None = None,
    ) -> UInt8[np.ndarray, "224 224 3"]:
        """The image of `state`, with the marks of `contacts`; drawn into `out` if it is given."""
        image = np.empty_like(self._small_background) if out is None else out
        canvas = self.canvas(state, contacts)
        image[:] = self._small_background
        for region in self._drawn:
            small = tuple(slice(part.start // _TILE * _SMALL_TILE, part.stop // _TILE * _SMALL_TILE) for part in region)
            image[small] = _reduced(canvas[region])
        return image

    def canvas(self, state: Float[np.ndarray, "7"], contacts: Iterable[ContactPoint] = ()) -> _Canvas:
        """The image before its reduction; the next drawing overwrites it."""
        canvas = self._canvas
        for region in self._drawn:
            canvas[region] = self._background[region]
        x, y, block_x, block_y = (min(max(place, -_FAR), _FAR) for place in state[:4].tolist())
        corners, place = _rectangles_at(block_x, block_y, float(state[4])), np.array([[round(x), round(y)]], np.int32)
        lines, bands = _edges(corners)
        discs = _discs_at(corners, EDGE_RADIUS)
        for part in (slice(0, 4), slice(4, 8)):
            cv2.fillConvexPoly(canvas, corners[part], BLOCK_FILL)
            for pieces in (lines, bands, discs):
                for piece in pieces[part]:
                    cv2.fillConvexPoly(canvas, piece, BLOCK_EDGE)
        for radius, colour in ((int(physics.PUSHER_RADIUS), PUSHER_RIM), (PUSHER_FILL_RADIUS, PUSHER_FILL)):
            cv2.fillConvexPoly(canvas, _discs_at(place, radius)[0], colour)
        self._drawn = _regions(corners, place)
        if any(_is_at_the_edge(region) for region in self._drawn):
            _draw_walls(canvas)
        for contact in contacts:
            _mark(canvas, contact)
        return canvas


def _regions(block: _Corners, pusher: _Corners) -> "list[_Region]":
    """Whole tiles that hold the block with the marks of its contacts, and the pusher, as far as they are in sight."""
    found = []
    for points, margin in ((block, _BLOCK_MARGIN), (pusher, int(physics.PUSHER_RADIUS))):
        (left, top), (right, bottom) = points.min(0).tolist(), points.max(0).tolist()
        rows, columns = _tiles(top - margin, bottom + margin), _tiles(left - margin, right + margin)
        if rows.start < rows.stop and columns.start < columns.stop:
            found.append((rows, columns))
    return found


def _tiles(first: int, last: int) -> slice:
    """The pixels of the tiles that pixels `first` to `last` lie in."""
    size = physics.ARENA_SIZE
    return slice(min(max(first // _TILE * _TILE, 0), size), min(max((last // _TILE + 1) * _TILE, 0), size))


def _is_at_the_edge(region: "_Region") -> bool:
    return any(part.start < _TILE or part.stop > physics.ARENA_SIZE - _TILE for part in region)


def _reduced(canvas: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "small_height small_width 3"]:
    height, width = (size // _TILE * _SMALL_TILE for size in canvas.shape[:2])
    return np.asarray(cv2.resize(canvas, (width, height)), np.uint8)


def _rectangles_at(x: float, y: float, angle: float) -> _Corners:
    """The corners of bar and stem, four each, rounded to pixels."""
    return np.asarray(np.rint(physics.placed(_RECTANGLES, np.array([x, y]), angle)), np.int32)


def _discs_at(points: _Corners, radius: int) -> Int[np.ndarray, "discs _ 2"]:
    return np.asarray(points[:, None] + _DISCS[radius])


def _edges(corners: _Corners) -> tuple[Int[np.ndarray, "edges 4 2"], Int[np.ndarray, "edges 4 2"]]:
    """The rectangles' edges as fat segments without their discs: a line of width 4 and a band for each."""
    ends = corners[_NEXT]
    way = np.abs(ends - corners)
    aside = np.where(way[:, :1] > way[:, 1:], *_ASIDE)
    across = np.rint(EDGE_RADIUS * way[:, ::-1] / np.sqrt((way * way).sum(1, keepdims=True))).astype(np.int32)
    lines = np.stack((corners - aside, ends - aside, ends + 2 * aside, corners + 2 * aside), 1)
    bands = np.stack((corners - across, corners + across, ends + across, ends - across), 1)
    return lines, bands


def _draw_walls(canvas: _Canvas) -> None:
    """The walls' fat segments: level or upright, they are strips with a disc at each corner."""
    (low, _), (high, _) = physics.WALLS[:2]
    for wall in (int(low), int(high)):
        across, along = (slice(wall - EDGE_RADIUS, wall + EDGE_RADIUS + 1), slice(int(low), int(high) + 1))
        canvas[across, along] = _WALL_STRIP
        canvas[along, across] = _WALL_STRIP.swapaxes(0, 1)
    for disc in _discs_at(_WALL_CORNERS, EDGE_RADIUS):
        cv2.fillConvexPoly(canvas, disc, WALL)


def _mark(canvas: _Canvas, contact: ContactPoint) -> None:
    """A smoothed line along the contact's normal: two pixels per step along its longer axis, blended by nearness."""
    (x, y), (end_x, end_y), (normal_x, normal_y) = contact.first, contact.second, contact.normal
    x, y = round(x - CONTACT_REACH * normal_x), round(y - CONTACT_REACH * normal_y)
    way_x = round(end_x + CONTACT_REACH * normal_x) - x
    way_y = round(end_y + CONTACT_REACH * normal_y) - y
    is_level = abs(way_x) >= abs(way_y)
    num_steps = max(abs(way_x), abs(way_y))
    for step in range(num_steps + 1):
        share = step / max(num_steps, 1)
        column, row = x + way_x * share, y + way_y * share
        first_column, first_row = math.floor(column), math.floor(row)
        beyond = row - first_row if is_level else column - first_column
        _blend(canvas, first_row, first_column, 1 - beyond)
        _blend(canvas, first_row + is_level, first_column + (not is_level), beyond)


def _blend(canvas: _Canvas, row: int, column: int, cover: float) -> None:
    if cover > 0 and 0 <= row < physics.ARENA_SIZE and 0 <= column < physics.ARENA_SIZE:
        pixel = canvas[row, column].tolist()
        canvas[row, column] = [int(old + (new - old) * cover) for old, new in zip(pixel, CONTACT, strict=True)]


@cache
def shared_renderer() -> PushTRenderer:
    """The one renderer of the process: it keeps a canvas, and an evaluation has hundreds of worlds."""
    return PushTRenderer()
