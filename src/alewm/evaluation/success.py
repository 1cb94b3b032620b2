"""Closed-loop success of a planner on stored pairs, with its interval and its floors."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch

from alewm.config import to_dict
from alewm.errors import InputError
from alewm.evaluation.closed_loop import ClosedLoop, GoalEnvs, GoalPairs, run_closed_loop
from alewm.evaluation.floors import DoNothing, Replay, UniformRandom, Unseen
from alewm.evaluation.records import EpisodeRecord, summarise
from alewm.evaluation.statistics import capacity_use
from alewm.planning.planner import Planner
from alewm.planning.policy import RecedingHorizon
from alewm.shapes import Float, Tensor

BUDGET = 50
"""Environment steps per episode in the paper."""

SIDE_BY_SIDE = 200
"""Episodes acted out at once; each is a simulated world of its own, and a renderer has room for so many."""


@dataclass(frozen=True)
class Evaluation:
    """Everything an evaluation found."""

    result: dict[str, Any]
    """The content of `result.json`."""

    records: tuple[EpisodeRecord, ...]
    """One per pair, in the order of the pairs."""

    outcome: ClosedLoop
    """What happened step by step; its actions replay the episodes (`animations.film`)."""


def evaluate(
    envs: GoalEnvs,
    pairs: GoalPairs,
    planner: Planner,
    prior: Float[Tensor, "C"],
    *,
    budget: int = BUDGET,
) -> Evaluation:
    """Success of `planner` on `pairs`, all planned together; random, no and recorded actions on the same pairs.

    `prior` is π_0 over the model's support, from which the selector's shift is measured.
    """
    return evaluate_in_parts(lambda _: envs, pairs, planner, prior, budget=budget, side_by_side=len(pairs))


def evaluate_in_parts(
    make_envs: Callable[[int], GoalEnvs],
    pairs: GoalPairs,
    planner: Planner,
    prior: Float[Tensor, "C"],
    *,
    budget: int = BUDGET,
    side_by_side: int = SIDE_BY_SIDE,
    on_search: Callable[[int], None] | None = None,
) -> Evaluation:
    """The same with `side_by_side` pairs at a time, in environments that `make_envs` makes for so many.

    Every pair has noise of its own, so the parts it is cut into change nothing but rounding. `on_search` is
    called after each search for a group of episodes, with their number.
    """
    if len(prior) != len(planner.support):
        raise InputError(f"The support has {len(planner.support)} capacities, but the prior has {len(prior)}.")
    began = time.perf_counter()
    played: list[_Played] = []
    envs, num_envs = None, 0
    for first in range(0, len(pairs), side_by_side):
        part = pairs.take(range(first, min(first + side_by_side, len(pairs))))
        if envs is None or num_envs != len(part):
            envs, num_envs = make_envs(len(part)), len(part)
        played.append(_play(envs, part, RecedingHorizon(planner, on_search), budget))
    records = tuple(record for each in played for record in each.records)
    result = {
        **summarise(records),
        **capacity_use(
            [record.capacity for record in records], torch.cat([each.q for each in played]), prior, planner.support
        ),
        "budget": budget,
        "planning": to_dict(planner.config),
        "device": planner.device.type,
        "seconds": time.perf_counter() - began,
        "seconds_planning": sum(each.seconds_planning for each in played),
    }
    return Evaluation(result, records, _joined([each.outcome for each in played]))


class _Played(NamedTuple):
    """Some pairs acted out."""

    records: tuple[EpisodeRecord, ...]
    outcome: ClosedLoop
    q: Float[Tensor, "B C"]
    seconds_planning: float


def _joined(outcomes: Sequence[ClosedLoop]) -> ClosedLoop:
    return ClosedLoop(*(torch.cat([getattr(each, part.name) for each in outcomes]) for part in fields(ClosedLoop)))


def _play(envs: GoalEnvs, pairs: GoalPairs, policy: RecedingHorizon, budget: int) -> _Played:
    began, planner = time.perf_counter(), policy.planner
    outcome = run_closed_loop(envs, pairs, policy, budget=budget)
    planned = time.perf_counter()
    action_dim, seed = len(planner.action_mean), planner.config.seed
    uniform = run_closed_loop(Unseen(envs), pairs, UniformRandom(action_dim, budget, seed), budget=budget)
    nothing = run_closed_loop(Unseen(envs), pairs, DoNothing(action_dim, budget), budget=budget)
    replayed = None
    if pairs.recorded is not None:
        replay = Replay(pairs.recorded)
        replayed = run_closed_loop(Unseen(envs), pairs, replay, budget=pairs.recorded.shape[1])
    records = tuple(
        EpisodeRecord(
            episode=pairs.episodes[b],
            start_step=pairs.start_steps[b],
            goal_step=pairs.goal_steps[b],
            seed=seed,
            capacity=policy.capacities[b],
            q=tuple(policy.q[b].tolist()),
            success=bool(outcome.success[b]),
            presolved=bool(outcome.presolved[b]),
            steps=int(outcome.steps[b]),
            predicted_costs=tuple(policy.predicted_costs[b]),
            distances=tuple(outcome.distances[b, : int(outcome.steps[b]) + 1].tolist()),
            random_success=bool(uniform.success[b]),
            zero_success=bool(nothing.success[b]),
            replay_success=None if replayed is None else bool(replayed.success[b]),
            demonstration=None if pairs.families is None else pairs.families[b],
        )
        for b in range(len(pairs))
    )
    return _Played(records, outcome, policy.q, planned - began)
