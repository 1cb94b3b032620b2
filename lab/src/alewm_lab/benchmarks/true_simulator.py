"""The planner without a model: candidates are tried out in the environment itself, and end states are compared.

What it reaches on a task's pairs is what planning with this search, horizon and budget is worth when predictions are
perfect. Where it misses a pair, the search or the horizon is too short, or the distance between states misleads it (a
learned one may mislead less: the bound is one on predictions, not on costs).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from alewm.config import differences, from_dict, to_dict
from alewm.data.action_statistics import ActionStatistics
from alewm.envs.contract import VectorGoalEnv
from alewm.envs.registry import get_task
from alewm.errors import InputError
from alewm.evaluation.closed_loop import GoalPairs, Unseen, run_closed_loop
from alewm.evaluation.success import BUDGET, write_records
from alewm.files import parse_json
from alewm.planning.noise import candidate_noise
from alewm.planning.planner import PlanningConfig
from alewm.planning.search import solve
from alewm.progress import Progress
from alewm.shapes import FRAME_SKIP, Bool, Float, Tensor, UInt8
from alewm.workers import WorkerPool, num_processes
from alewm_lab.benchmarks.replay import StandardPairs, bench_replay

StateCost = Callable[[VectorGoalEnv], Tensor]
"""A batch of worlds with goals to a cost per world [B], lower is better."""

EFFECTOR_SHARE = 0.25
"""What a metre between the effector and where it is in the goal row costs, relative to a metre of the cube."""


def state_cost(task_name: str) -> StateCost:
    """The cost a planner in the true simulator of `task_name` minimises.

    It is the environment's own `distance`, the number whose limit is success: Two-Room's pixels to the target; the
    larger ratio of an error to its tolerance for Push-T (pusher and block together, block angle) and for Reacher (each
    joint). Cube's distance is that of the cube alone, which no plan changes before the gripper touches it; there, as in
    a picture of the goal, the arm counts too.
    """
    return _cube_and_effector if task_name == "cube" else _own_distance


def _own_distance(worlds: VectorGoalEnv) -> Float[Tensor, "B"]:
    return worlds.distance()


def _cube_and_effector(worlds: VectorGoalEnv) -> Float[Tensor, "B"]:
    """Metres of the cube from its goal, and a share of the effector's from where it is in the goal row."""
    goal = _goals("cube")
    goal.set_state({name: values[:1] for name, values in worlds.goal().items()})
    apart = worlds.columns()["proprio_effector_pos"] - goal.columns()["proprio_effector_pos"]
    return worlds.distance() + EFFECTOR_SHARE * apart.square().sum(-1).sqrt()


@cache
def _goals(task_name: str) -> VectorGoalEnv:
    """A world to load a goal into, one per process."""
    return get_task(task_name).make_vector_env(1)


class TrueSimulator:
    """A policy for one episode that plans as `RecedingHorizon` does, with `env` in place of a world model.

    The same search meets the same noise, in the same normalised units of actions; only the rollout and the cost differ.
    Copies are loaded from the episode's state. An engine that hides some of it (`restores_exactly` is False) therefore
    imagines a first plan exactly, since episodes begin by loading a row too, and later ones nearly so.
    """

    def __init__(
        self,
        env: VectorGoalEnv,
        make_copies: Callable[[int], VectorGoalEnv],
        cost: StateCost,
        statistics: ActionStatistics,
        config: PlanningConfig,
    ) -> None:
        """`make_copies(n)` gives n worlds of the kind `env` is one of; `statistics` are those of training actions."""
        self.env, self.cost, self.statistics, self.config = env, cost, statistics, config
        self._copies = cache(make_copies)
        self.predicted_costs: list[float] = []

    def begin(self, first: UInt8[Tensor, "1 Y X 3"], goal: UInt8[Tensor, "1 Y X 3"], episodes: Sequence[int]) -> None:
        """Start a new episode, whose number names its streams of noise; the frames are not looked at."""
        (self._episode,) = episodes
        frame_skip = self.config.frame_skip or FRAME_SKIP
        self._blocks = torch.zeros(1, self.config.horizon, frame_skip * self.statistics.action_dim)
        self.predicted_costs = []

    def next_actions(
        self, frames: UInt8[Tensor, "1 Y X 3"], active: Bool[Tensor, "1"]
    ) -> Float[Tensor, "1 steps action"]:
        """The actions to execute before planning again."""
        config, cem = self.config, self.config.cem
        key = (config.seed, self._episode, len(self.predicted_costs))
        size = (cem.num_iterations, cem.num_candidates, *self._blocks.shape[1:])
        found = solve(self._score, candidate_noise([key], *size, device=self._blocks.device), cem, self._blocks)
        self.predicted_costs.append(float(found.cost))
        executed, left = found.mean[:, : config.executed_blocks], found.mean[:, config.executed_blocks :]
        self._blocks = torch.cat([left, torch.zeros_like(executed)], 1)
        return self._actions(executed)

    def _score(self, candidates: Float[Tensor, "1 S H A"]) -> Float[Tensor, "1 S"]:
        """The cost of where each candidate ends."""
        actions = self._actions(candidates[0])
        worlds = self._copies(len(actions))
        worlds.reset_to(_repeated(self.env.state(), len(actions)), _repeated(self.env.goal(), len(actions)))
        for action in actions.unbind(1):
            worlds.step(action)
        return self.cost(worlds)[None].float()

    def _actions(self, blocks: Float[Tensor, "B H A"]) -> Float[Tensor, "B steps action"]:
        return self.statistics.denormalize(blocks.reshape(len(blocks), -1, self.statistics.action_dim))


def _repeated(rows: dict[str, Tensor], times: int) -> dict[str, Tensor]:
    return {name: values.expand(times, *values.shape[1:]) for name, values in rows.items()}


_MOST_NAMED = 10


@dataclass(frozen=True)
class SimulatedPlan:
    """What became of one pair."""

    episode: int
    start_step: int
    goal_step: int
    success: bool
    presolved: bool
    """Whether it was at the goal before its first step."""
    steps: int
    """Environment steps taken."""
    predicted_costs: tuple[float, ...]
    """The cost of the end state each plan led to in the simulator's copies."""
    distances: tuple[float, ...]
    """Distance to the goal at the start and after each of `steps` steps."""
    demonstration: int | None = None
    """What its episode is a copy of."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The task, the search, and the statistics of the actions it searched in."""

    @property
    def pair_name(self) -> tuple[int, int]:
        """What tells it from other pairs of the same data."""
        return self.episode, self.start_step


def bench_true_simulator(standard: StandardPairs, planning: PlanningConfig, *, jobs: int, out: Path | None) -> None:
    """Prints success of the planner in the simulator beside recorded actions and floors, and which pairs it missed.

    Every pair is written to `out` as soon as it is planned. Pairs that `out` holds already are not planned again.
    """
    processes = min(num_processes(jobs), len(standard.pairs))
    known = {} if out is None else _read_plans(out, settings_of(standard.task.name, standard.statistics, planning))
    pairs = standard.pairs.pair_names
    missing = [index for index, pair in enumerate(pairs) if pair not in known]
    began = time.perf_counter()
    with Progress(f"planning in {standard.task.name}", len(pairs), "pairs") as bar:
        bar.advance(len(pairs) - len(missing))
        for plan in _all_plans(standard, planning, missing, processes):
            known[plan.pair_name] = plan
            if out is not None:
                write_records(out, list(known.values()))
            bar.advance(note=f"{sum(known[pair].success for pair in pairs if pair in known)} reached")
    plans = [known[pair] for pair in pairs]
    seconds = time.perf_counter() - began
    missed = [plan for plan in plans if not plan.success]
    cem = planning.cem
    print(
        f"{cem.num_candidates} candidates, {cem.num_iterations} iterations, {planning.horizon} blocks, "
        f"{planning.executed_blocks} of them executed; {seconds:,.0f} s with {processes} processes for "
        f"{len(missing)} pairs; the others were planned before"
    )
    for plan in missed[:_MOST_NAMED]:
        print(
            f"missed: episode {plan.episode}, rows {plan.start_step} to {plan.goal_step}: "
            f"distance {plan.distances[0]:.3g} at the start, {min(plan.distances):.3g} at best"
        )
    if len(missed) > _MOST_NAMED:
        print(f"and {len(missed) - _MOST_NAMED} more, in the line of JSON")
    bench_replay(
        "true-simulator",
        standard,
        planning.seed,
        torch.tensor([plan.success for plan in plans]),
        cem=to_dict(cem),
        horizon=planning.horizon,
        executed=planning.executed_blocks,
        missed=[[plan.episode, plan.start_step] for plan in missed],
        processes=processes,
        seconds=seconds,
        planned_before=len(pairs) - len(missing),
    )


def plan_pair(task_name: str, statistics: ActionStatistics, planning: PlanningConfig, pair: GoalPairs) -> SimulatedPlan:
    """What becomes of the one `pair` under the planner in the simulator."""
    make_worlds = get_task(task_name).make_vector_env
    env = make_worlds(1)
    policy = TrueSimulator(env, make_worlds, state_cost(task_name), statistics, planning)
    outcome = run_closed_loop(Unseen(env), pair, policy, budget=BUDGET)
    steps = int(outcome.steps)
    return SimulatedPlan(
        pair.episodes[0],
        pair.start_steps[0],
        pair.goal_steps[0],
        success=bool(outcome.success),
        presolved=bool(outcome.presolved),
        steps=steps,
        predicted_costs=tuple(policy.predicted_costs),
        distances=tuple(outcome.distances[0, : steps + 1].tolist()),
        demonstration=None if pair.families is None else pair.families[0],
        settings=settings_of(task_name, statistics, planning),
    )


def settings_of(task_name: str, statistics: ActionStatistics, planning: PlanningConfig) -> dict[str, Any]:
    """All that decides what becomes of a pair, besides the pair."""
    return {"task": task_name, "actions": to_dict(statistics), "planning": to_dict(planning)}


def _read_plans(out: Path, settings: dict[str, Any]) -> dict[tuple[int, int], SimulatedPlan]:
    """The plans that `out` holds, by pair; those of another search, task or data are refused."""
    if not out.is_file():
        out.parent.mkdir(parents=True, exist_ok=True)
        return {}
    plans = [from_dict(SimulatedPlan, parse_json(line)) for line in out.read_text().splitlines()]
    for plan in plans:
        if changed := differences(plan.settings, settings):
            raise InputError("\n  ".join([f"{out} holds pairs that were planned with other settings.", *changed]))
    return {plan.pair_name: plan for plan in plans}


def _all_plans(
    standard: StandardPairs, planning: PlanningConfig, which: Sequence[int], processes: int
) -> Iterator[SimulatedPlan]:
    """A plan per pair, in the order of `which`: a pair's outcome depends on nothing but itself."""
    plan = partial(plan_pair, standard.task.name, standard.statistics, planning)
    each = [standard.pairs.take([index]) for index in which]
    if processes == 1:
        yield from map(plan, each)
        return
    with WorkerPool(processes, "alewm_lab.benchmarks.true_simulator") as pool:
        yield from pool.map(plan, each)
