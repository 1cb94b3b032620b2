"""Ways around the block: where the pusher can begin a push, and the shortest path there that touches nothing.

Everything is in the block's own frame, where the block never moves: eight way-points around it and the ways between
them are known once and for all, and a path leads from the pusher over at most two of them, and those between, to its
end.
"""

import itertools
import math

import numpy as np

from alewm.envs.push_t import geometry
from alewm.shapes import Bool, Float

CLEARANCE = geometry.PUSHER_RADIUS + 8.0
"""Distance from the block at which the pusher travels, centre to edge."""

_CONTACT_GAP = 3.0  # between the pusher's rim and the block where a push begins
_SAMPLES = np.linspace(0.0, 1.0, 25)
_Point = Float[np.ndarray, "2"]
_Points = Float[np.ndarray, "*points 2"]


def _way_points() -> Float[np.ndarray, "8 2"]:
    aside, half_bar, half_stem = CLEARANCE, 60.0, 15.0
    right = [
        (half_bar + aside, -aside),
        (half_bar + aside, 30 + aside),
        (half_stem + aside, 30 + aside),
        (half_stem + aside, 120 + aside),
    ]
    return np.array(right + [(-x, y) for x, y in reversed(right)])


def are_clear(starts: _Points, ends: _Points) -> Bool[np.ndarray, "*points"]:
    """Whether the pusher travels each straight way from start to end without coming too near to the block.

    A way may begin or end nearer, at the block, if it comes no nearer than that.
    """
    along = starts[..., None, :] + (ends - starts)[..., None, :] * _SAMPLES[:, None]
    gaps = geometry.distance_to_block(along)
    allowed = np.minimum(np.minimum(gaps[..., 0], gaps[..., -1]), CLEARANCE)
    return np.asarray(gaps.min(-1) > allowed - 0.5)


WAY_POINTS = _way_points()
_NUM = len(WAY_POINTS)


def _shortest_ways() -> tuple[np.ndarray, np.ndarray]:
    """Lengths between all way-points, and from each the next one on the way to each other."""
    starts, ends = np.broadcast_arrays(WAY_POINTS[:, None], WAY_POINTS[None])
    lengths = np.where(are_clear(starts, ends), np.linalg.norm(ends - starts, axis=-1), math.inf)
    following = np.broadcast_to(np.arange(_NUM), (_NUM, _NUM)).copy()
    for middle, start, end in itertools.product(range(_NUM), repeat=3):
        through = lengths[start, middle] + lengths[middle, end]
        if through < lengths[start, end]:
            lengths[start, end], following[start, end] = through, following[start, middle]
    return lengths, following


_LENGTHS, _FOLLOWING = _shortest_ways()


def path_around_block(start: _Point, end: _Point) -> tuple[float, list[_Point]]:
    """The length and the corners, `end` included, of a short clear path; infinite and direct where there is none."""
    starts = np.concatenate((end[None], WAY_POINTS))
    is_clear = are_clear(np.broadcast_to(start, starts.shape), starts)
    if is_clear[0]:
        return float(np.linalg.norm(end - start)), [end]
    leave = np.where(is_clear[1:], np.linalg.norm(WAY_POINTS - start, axis=-1), math.inf)
    ends_clear = are_clear(WAY_POINTS, np.broadcast_to(end, WAY_POINTS.shape))
    arrive = np.where(ends_clear, np.linalg.norm(WAY_POINTS - end, axis=-1), math.inf)
    total = leave[:, None] + _LENGTHS + arrive
    first, last = np.unravel_index(int(total.argmin()), total.shape)
    length = float(total[first, last])
    if math.isinf(length):
        return length, [end]
    corners = [WAY_POINTS[first]]
    while first != last:
        first = _FOLLOWING[first, last]
        corners.append(WAY_POINTS[first])
    return length, [*corners, end]


def sample_push(generator: np.random.Generator) -> tuple[_Point, float]:
    """Where a push begins, just off the block, and its direction, in the block's frame.

    Points are uniform along the outline's faces, as far as the pusher fits there, and every fifth is in one of the
    two concave corners. Directions lie within 40 degrees of straight into the block.
    """
    aside = geometry.PUSHER_RADIUS + _CONTACT_GAP
    tilt = generator.uniform(-math.radians(40), math.radians(40))
    if generator.random() < 0.2:
        side = 1.0 if generator.random() < 0.5 else -1.0
        return np.array([side * (15 + aside), 30 + aside]), math.atan2(-1.0, -side) + tilt
    while True:
        along = generator.uniform(0.0, _PERIMETER)
        face = int(np.searchsorted(_FACE_ENDS, along, side="right"))
        share = (along - _FACE_ENDS[face]) / _FACE_LENGTHS[face] + 1
        normal = _FACE_NORMALS[face]
        point = _CORNERS[face] + share * (_NEXT_CORNERS[face] - _CORNERS[face]) + aside * normal
        if geometry.distance_to_block(point) > aside - 0.5:
            return point, math.atan2(-normal[1], -normal[0]) + tilt


_CORNERS = np.array(geometry.OUTLINE)
_NEXT_CORNERS = np.roll(_CORNERS, -1, 0)
_FACE_LENGTHS = np.linalg.norm(_NEXT_CORNERS - _CORNERS, axis=-1)
_FACE_ENDS = np.cumsum(_FACE_LENGTHS)
_PERIMETER = float(_FACE_ENDS[-1])
_FACE_NORMALS = (_NEXT_CORNERS - _CORNERS)[:, ::-1] * (1, -1) / _FACE_LENGTHS[:, None]
