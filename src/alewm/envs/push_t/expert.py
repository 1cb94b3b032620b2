"""An expert that brings the block to one pose after another, planning in the simulator itself.

It repeats two phases. *Approach*: of many random pushes (`approach.sample_push`), each tried out in a copy of the
world, it takes the one that promises the least remaining error for the time it costs, and travels around the block to
where that push begins. *Push*: it keeps choosing, every second step, among small changes of direction and strength,
looking a few steps ahead in copies of the world, and stops when none brings the block nearer. When the pose is reached,
the next one is drawn. Actions follow what is wanted with a lag, as a hand does.
"""

import math
from dataclasses import dataclass

import numpy as np

from alewm.envs.push_t import geometry
from alewm.envs.push_t.approach import path_around_block, sample_push
from alewm.envs.push_t.physics import ACTION_PIXELS, PushTWorld
from alewm.envs.push_t.poses import Pose, pose_gap
from alewm.shapes import Float

STEADY_RESPONSE = 0.407
"""Share of the commanded way that the pusher covers per step under a repeated action."""

_FROM_EDGE = 20.0  # pixels that the pusher stays off the arena's edge where a push begins
_PASSED, _ARRIVED = 14.0, 8.0  # pixels from a corner of the way at which the next is headed for, and from its end
_SLOWEST, _BRAKING = 0.08, 0.6  # least length of an action, and its share of what would reach the end in one step
_CHANGE_STD, _CHANGE_FACTORS = math.radians(25), (0.6, 1.25)  # of a push's direction and strength
_SHORTEST_PUSH = 3  # steps before a push may end


@dataclass(frozen=True)
class ExpertConfig:
    """How the expert plans and moves."""

    num_pushes: int = 48
    """Pushes tried out before each approach."""
    push_steps: int = 14
    """Environment steps a tried-out push lasts."""
    num_changes: int = 12
    """Changes of direction and strength tried out within a push, besides none."""
    change_steps: int = 6
    """Environment steps they are looked ahead."""
    step_cost: float = 0.4
    """Pixels of remaining error that one environment step of pushing is worth."""
    travel_cost: float = 1.2
    """The same for a step of travelling."""
    least_gain: float = 0.75
    """Pixels that a push must still promise, or it ends."""
    push_strength: tuple[float, float] = (0.1, 0.2)
    """Range of the length of a pushing action; every demonstration draws its own."""
    approach_strength: tuple[float, float] = (0.32, 0.5)
    """Range of the length of a travelling action."""
    follow: float = 0.55
    """Share of the way to the wanted action that an action goes."""


class Expert:
    """Chooses actions for a world it is shown, one after the other."""

    def __init__(self, config: ExpertConfig, generator: np.random.Generator) -> None:
        self.config, self._generator = config, generator
        self._push_strength = generator.uniform(*config.push_strength)
        self._approach_strength = generator.uniform(*config.approach_strength)
        self._action = np.zeros(2)
        self._corners: list[np.ndarray] = []
        self._direction = 0.0
        self._is_pushing = False
        self._push_age = 0
        self._wanted = np.zeros(2)

    def forget_plan(self) -> None:
        """Begin anew with the next action: the goal has changed, or the push is over."""
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
        return np.asarray(action + self.config.follow * (wanted - action))

    def _choose_push(self, state: np.ndarray, goal: Pose) -> None:
        config, pose = self.config, Pose.of(state)
        turn = geometry.rotation(pose.angle)
        pusher = turn.T @ (state[:2] - state[2:4])
        pace = self._approach_strength * ACTION_PIXELS * STEADY_RESPONSE
        # Should no push be possible, because the block is at a wall, look again from the middle.
        best_cost, self._corners = math.inf, [np.full(2, geometry.ARENA_SIZE / 2)]
        self._direction = math.atan2(*(state[2:4] - self._corners[0])[::-1])
        for _ in range(config.num_pushes):
            point, direction = sample_push(self._generator)
            place = turn @ point + state[2:4]
            if place.min() < _FROM_EDGE or place.max() > geometry.ARENA_SIZE - _FROM_EDGE:
                continue
            length, corners = path_around_block(pusher, point)
            wanted = self._push_strength * _unit(direction + pose.angle)
            trial = np.array([*place, *state[2:5], 0.0, 0.0])
            travel_cost = config.travel_cost * length / pace
            cost = travel_cost + self._trial(trial, np.zeros(2), wanted, config.push_steps, goal)
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
            least = min(least, gap + self.config.step_cost * step)
            if gap > before:
                break
        return least

    def _continue_push(self, state: np.ndarray, goal: Pose) -> None:
        config, generator = self.config, self._generator
        changes = [(0.0, 1.0)]
        if self._push_age:
            changes += zip(
                generator.normal(0.0, _CHANGE_STD, config.num_changes),
                generator.uniform(*_CHANGE_FACTORS, config.num_changes),
                strict=True,
            )
        best_cost, best = math.inf, self._wanted
        for angle, factor in changes:
            wanted = self._push_strength * factor * _unit(self._direction + angle)
            cost = self._trial(state, self._action, wanted, config.change_steps, goal)
            if cost < best_cost:
                best_cost, best = cost, wanted
        if self._push_age > _SHORTEST_PUSH and best_cost > pose_gap(Pose.of(state), goal) - config.least_gain:
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
