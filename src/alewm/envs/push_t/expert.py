"""An expert that brings the block to one pose after another, planning in the simulator itself, and its demonstrations.

It repeats two phases. *Approach*: it tries many random pushes (`sample_push`), each in a copy of the world, takes the
one with the least remaining error for its time, and travels around the block to where that push begins. *Push*: every
second step it chooses among small changes of direction and strength, looking a few steps ahead in copies of the world,
and stops when none brings the block nearer. When the pose is reached, the next one is drawn. Actions lag behind what is
wanted, as a hand does.

Paths around the block are found in the block's own frame, where the block never moves: eight way-points and the
shortest ways between them are computed once.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from alewm.envs.push_t import physics
from alewm.envs.push_t.env import PUSHER_HIGH, PUSHER_LOW, is_free
from alewm.envs.push_t.physics import ACTION_PIXELS, ANGLE_TOLERANCE, POSITION_TOLERANCE, PushTWorld
from alewm.envs.recording import episode_stream
from alewm.shapes import Bool, Float

_KEY_POINTS = ((-60.0, 15.0), (60.0, 15.0), (0.0, 15.0), (0.0, 120.0))


class Pose(NamedTuple):
    """A place of the block's origin and an angle."""

    x: float
    y: float
    angle: float

    @classmethod
    def of(cls, state: Float[np.ndarray, "7"]) -> "Pose":
        """Where the block is in `state`."""
        return cls(float(state[2]), float(state[3]), float(state[4]))


def pose_gap(pose: Pose, goal: Pose) -> float:
    """Mean distance in pixels between four points of the block in two poses: place and angle in one number."""
    cosine, sine = math.cos(pose.angle), math.sin(pose.angle)
    goal_cosine, goal_sine = math.cos(goal.angle), math.sin(goal.angle)
    dx, dy, dc, ds = pose.x - goal.x, pose.y - goal.y, cosine - goal_cosine, sine - goal_sine
    return sum(math.hypot(dx + dc * x - ds * y, dy + ds * x + dc * y) for x, y in _KEY_POINTS) / len(_KEY_POINTS)


def is_reached(pose: Pose, goal: Pose, share: float = 1.0) -> bool:
    """Whether the block is within `share` of 20 pixels and of 20 degrees of its goal."""
    position_error = math.hypot(pose.x - goal.x, pose.y - goal.y)
    angle_error = abs(physics.wrapped(pose.angle - goal.angle))
    return position_error < share * POSITION_TOLERANCE and angle_error < share * ANGLE_TOLERANCE


def sample_pose(generator: np.random.Generator, spread: float) -> Pose:
    """A pose whose centre of gravity is uniform on a square of half-width `spread`, at a uniform angle."""
    middle = physics.ARENA_SIZE / 2 + generator.uniform(-spread, spread, 2)
    angle = generator.uniform(0.0, 2 * math.pi)
    origin = middle - physics.rotation(angle) @ np.array(physics.CENTRE_OF_GRAVITY)
    return Pose(float(origin[0]), float(origin[1]), angle)


CLEARANCE = physics.PUSHER_RADIUS + 8.0
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
    gaps = physics.distance_to_block(along)
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
    aside = physics.PUSHER_RADIUS + _CONTACT_GAP
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
        if physics.distance_to_block(point) > aside - 0.5:
            return point, math.atan2(-normal[1], -normal[0]) + tilt


_CORNERS = np.array(physics.OUTLINE)
_NEXT_CORNERS = np.roll(_CORNERS, -1, 0)
_FACE_LENGTHS = np.linalg.norm(_NEXT_CORNERS - _CORNERS, axis=-1)
_FACE_ENDS = np.cumsum(_FACE_LENGTHS)
_PERIMETER = float(_FACE_ENDS[-1])
_FACE_NORMALS = (_NEXT_CORNERS - _CORNERS)[:, ::-1] * (1, -1) / _FACE_LENGTHS[:, None]


STEADY_RESPONSE = 0.407
"""Share of the commanded way that the pusher covers per step under a repeated action."""

_FROM_EDGE = 20.0  # pixels that the pusher stays off the arena's edge where a push begins
_PASSED, _ARRIVED = 14.0, 8.0  # pixels from a corner of the way at which the next is headed for, and from its end
_SLOWEST, _BRAKING = 0.08, 0.6  # least length of an action, and its share of what would reach the end in one step
_CHANGE_STD, _CHANGE_FACTORS = math.radians(25), (0.6, 1.25)  # of a push's direction and strength
_SHORTEST_PUSH = 3  # steps before a push may end


NUM_PUSHES, PUSH_STEPS = 48, 14
"""Pushes tried out before each approach, and environment steps that each lasts."""

NUM_CHANGES, CHANGE_STEPS = 12, 6
"""Changes of direction and strength tried out within a push, besides none, and environment steps looked ahead."""

STEP_COST, TRAVEL_COST = 0.4, 1.2
"""Pixels of remaining error that one environment step of pushing is worth, and one of travelling."""

LEAST_GAIN = 0.75
"""Pixels that a push must still promise, or it ends."""

PUSH_STRENGTH, APPROACH_STRENGTH = (0.1, 0.2), (0.32, 0.5)
"""Ranges of the length of a pushing action and of a travelling one; every demonstration draws its own."""

FOLLOW = 0.55
"""Share of the way to the wanted action that an action goes."""


class Expert:
    """Chooses actions for a world it is shown, one after the other."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._push_strength = generator.uniform(*PUSH_STRENGTH)
        self._approach_strength = generator.uniform(*APPROACH_STRENGTH)
        self._action = np.zeros(2)
        self._corners: list[np.ndarray] = []
        self._direction = 0.0
        self._is_pushing = False
        self._push_age = 0
        self._wanted = np.zeros(2)

    def forget_plan(self) -> None:
        """Reset: the goal has changed, or the push is over."""
        self._is_pushing, self._corners = False, []

    def act(self, state: Float[np.ndarray, "7"], goal: Pose) -> Float[np.ndarray, "2"]:
        """The next action towards `goal`."""
        if self._is_pushing and self._push_age % 2 == 0:
            self._continue_push(state, goal)
        if not self._is_pushing and not self._corners:
            self._choose_push(state, goal)
        if not self._is_pushing:
            self._travel(state)
        if self._is_pushing:
            self._push_age += 1
        self._action = self._followed(self._action, self._wanted)
        return self._action

    def _followed(self, action: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return np.asarray(action + FOLLOW * (wanted - action))

    def _choose_push(self, state: np.ndarray, goal: Pose) -> None:
        pose = Pose.of(state)
        turn = physics.rotation(pose.angle)
        pusher = turn.T @ (state[:2] - state[2:4])
        pace = self._approach_strength * ACTION_PIXELS * STEADY_RESPONSE
        # Should no push be possible, because the block is at a wall, look again from the middle.
        best_cost, self._corners = math.inf, [np.full(2, physics.ARENA_SIZE / 2)]
        self._direction = math.atan2(*(state[2:4] - self._corners[0])[::-1])
        for _ in range(NUM_PUSHES):
            point, direction = sample_push(self._generator)
            place = turn @ point + state[2:4]
            if place.min() < _FROM_EDGE or place.max() > physics.ARENA_SIZE - _FROM_EDGE:
                continue
            length, corners = path_around_block(pusher, point)
            wanted = self._push_strength * _unit(direction + pose.angle)
            trial = np.array([*place, *state[2:5], 0.0, 0.0])
            travel_cost = TRAVEL_COST * length / pace
            cost = travel_cost + self._trial(trial, np.zeros(2), wanted, PUSH_STEPS, goal)
            if cost < best_cost:
                best_cost, self._direction = cost, direction + pose.angle
                self._corners = [turn @ corner + state[2:4] for corner in corners]

    def _trial(self, state: np.ndarray, action: np.ndarray, wanted: np.ndarray, num_steps: int, goal: Pose) -> float:
        """The least cost on the way, of error and time, if `wanted` is done from `state` on."""
        world, least, gap = PushTWorld(state), math.inf, math.inf
        for step in range(1, num_steps + 1):
            action = self._followed(action, wanted)
            world.step(*action)
            before, gap = gap, pose_gap(Pose(*world.block_pose()), goal)
            least = min(least, gap + STEP_COST * step)
            if gap > before:
                break
        return least

    def _continue_push(self, state: np.ndarray, goal: Pose) -> None:
        changes = [(0.0, 1.0)]
        if self._push_age:
            changes += zip(
                self._generator.normal(0.0, _CHANGE_STD, NUM_CHANGES),
                self._generator.uniform(*_CHANGE_FACTORS, NUM_CHANGES),
                strict=True,
            )
        best_cost, best = math.inf, self._wanted
        for angle, factor in changes:
            wanted = self._push_strength * factor * _unit(self._direction + angle)
            cost = self._trial(state, self._action, wanted, CHANGE_STEPS, goal)
            if cost < best_cost:
                best_cost, best = cost, wanted
        if self._push_age > _SHORTEST_PUSH and best_cost > pose_gap(Pose.of(state), goal) - LEAST_GAIN:
            self.forget_plan()
            return
        self._wanted = best
        self._direction = math.atan2(best[1], best[0])

    def _travel(self, state: np.ndarray) -> None:
        while True:
            way = self._corners[0] - state[:2]
            distance = float(np.linalg.norm(way))
            is_last = len(self._corners) == 1
            if distance > (_ARRIVED if is_last else _PASSED):
                break
            self._corners.pop(0)
            if is_last:
                self._is_pushing, self._push_age = True, 0
                self._wanted = self._push_strength * _unit(self._direction)
                return
        strength = self._approach_strength
        if is_last:
            strength = min(strength, max(_SLOWEST, _BRAKING * distance / (ACTION_PIXELS * STEADY_RESPONSE)))
        self._wanted = strength * way / distance


def _unit(angle: float) -> np.ndarray:
    return np.array([math.cos(angle), math.sin(angle)])


SHORTEST, LONGEST = 100, 150
"""Environment steps of a demonstration, drawn uniformly; both included."""

START_SPREAD, POSE_SPREAD = 80.0, 65.0
"""How far from the arena's centre, on each axis, the block's centre of gravity starts and is to be brought."""

_SATISFIED = 0.5  # share of the tolerances within which the expert leaves a pose for the next


@dataclass(frozen=True)
class Demonstration:
    """A demonstration of the expert."""

    start: Float[np.ndarray, "7"]
    """The state it began in."""
    actions: Float[np.ndarray, "steps 2"]
    """float32, as recorded and as executed."""
    pusher: Float[np.ndarray, "rows 2"]
    """Where the pusher was at every row."""
    goal_poses: Float[np.ndarray, "rows 3"]
    """The pose that was being pursued at every row: x, y, angle of the block's origin."""
    poses_pursued: int
    """How many poses the expert was given: the first, and another after each that it brought the block close to."""
    first_reached: int | None
    """Steps until the block was within 20 pixels and 20 degrees of its first pose, if it ever was."""


def sample_start(generator: np.random.Generator) -> Float[np.ndarray, "7"]:
    """A state at rest with the block near the centre and the pusher anywhere off it."""
    while True:
        pose = sample_pose(generator, START_SPREAD)
        pusher = generator.uniform(PUSHER_LOW, PUSHER_HIGH, 2)
        if is_free(pusher, np.array(pose[:2]), pose.angle):
            return np.array([*pusher, *pose, 0.0, 0.0])


@lru_cache(maxsize=4)
def demonstrate(seed: int, index: int) -> Demonstration:
    """Demonstration number `index` under `seed`, a function of these alone.

    The last few are remembered, because an episode and its neighbours replay the same one.
    """
    generator = episode_stream(seed, 0, index)
    start, num_steps = sample_start(generator), int(generator.integers(SHORTEST, LONGEST + 1))
    expert, world = Expert(generator), PushTWorld(start)
    goal = sample_pose(generator, POSE_SPREAD)
    actions, pusher, goals = [], [start[:2]], [goal]
    poses_pursued, first_reached = 1, None
    for step in range(1, num_steps + 1):
        state = world.state()
        if is_reached(Pose.of(state), goal, _SATISFIED):
            goal, poses_pursued = sample_pose(generator, POSE_SPREAD), poses_pursued + 1
            expert.forget_plan()
        actions.append(expert.act(state, goal).astype(np.float32))
        world.step(*actions[-1].astype(np.float64))
        if poses_pursued == 1 and first_reached is None and is_reached(Pose.of(world.state()), goal):
            first_reached = step
        pusher.append(world.state()[:2])
        goals.append(goal)
    return Demonstration(
        _frozen(start), _frozen(actions), _frozen(pusher), _frozen(goals), poses_pursued, first_reached
    )


def _frozen(values: object) -> np.ndarray:
    array = np.array(values)
    array.flags.writeable = False
    return array
