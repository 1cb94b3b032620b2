"""Success of the planner in the true simulator: what planning with this search, horizon and budget can reach."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from alewm.benchmarks.replay import bench_replay
from alewm.benchmarks.standard_pairs import StandardPairs
from alewm.config import to_dict
from alewm.data.normalize import ActionStatistics
from alewm.envs.registration import get_task
from alewm.evaluation.closed_loop import GoalPairs, run_closed_loop
from alewm.evaluation.floors import Unseen
from alewm.evaluation.records import write_records
from alewm.evaluation.state_costs import state_cost
from alewm.evaluation.success import BUDGET
from alewm.evaluation.true_simulator import TrueSimulator
from alewm.planning.planner import PlanningConfig
from alewm.progress import Progress
from alewm.worker_pool import WorkerPool
from alewm.workers import num_processes

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


def bench_true_simulator(standard: StandardPairs, planning: PlanningConfig, *, jobs: int, out: Path | None) -> None:
    """Prints success of the planner in the simulator beside recorded actions and floors, and which pairs it missed."""
    processes = min(num_processes(jobs), len(standard.pairs))
    began = time.perf_counter()
    plans = []
    with Progress(f"planning in {standard.task.name}", len(standard.pairs), "pairs") as bar:
        for plan in _all_plans(standard, planning, processes):
            plans.append(plan)
            bar.advance(note=f"{sum(each.success for each in plans)} reached")
    seconds = time.perf_counter() - began
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_records(out, plans)
    missed = [plan for plan in plans if not plan.success]
    cem = planning.cem
    print(
        f"{cem.num_candidates} candidates, {cem.num_iterations} iterations, {planning.horizon} blocks, "
        f"{planning.executed_blocks} of them executed; {seconds:,.0f} s with {processes} processes"
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
    )


def _all_plans(standard: StandardPairs, planning: PlanningConfig, processes: int) -> Iterator[SimulatedPlan]:
    """A plan per pair, in the order of the pairs: a pair's outcome depends on nothing but itself."""
    plan = partial(plan_pair, standard.task.name, standard.statistics, planning)
    each = [standard.pairs.take([index]) for index in range(len(standard.pairs))]
    if processes == 1:
        yield from map(plan, each)
        return
    with WorkerPool(processes, "alewm.benchmarks.true_simulator") as pool:
        yield from pool.map(plan, each)
