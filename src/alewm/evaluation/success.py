"""Closed-loop success of a planner on stored pairs: a record per episode, and the summary kept in `result.json`."""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch

from alewm.config import from_dict, to_dict
from alewm.errors import InputError
from alewm.evaluation.closed_loop import (
    ClosedLoop,
    GoalEnvs,
    GoalPairs,
    OpenLoop,
    Unseen,
    run_closed_loop,
    uniform_actions,
)
from alewm.evaluation.statistics import PairedDifference, Proportion, capacity_use, compare_paired
from alewm.files import parse_json, write_text
from alewm.planning.planner import Planner
from alewm.planning.policy import RecedingHorizon
from alewm.shapes import Bool, Float, Tensor


@dataclass(frozen=True)
class EpisodeRecord:
    """One evaluated pair, with everything needed to repeat its plan."""

    episode: int
    """Data-file episode."""

    start_step: int
    """Row of the start within it."""

    goal_step: int
    """Row of the goal within it."""

    seed: int
    """Seed of its streams, with `episode` (and `start_step`, where an episode has several pairs) and the plan's
    index."""

    capacity: int
    """Capacity it was planned with."""

    q: tuple[float, ...]
    """q(k | first, goal) over the support."""

    success: bool
    """Whether it reached the goal within the budget."""

    presolved: bool
    """Whether it was at the goal before its first step."""

    steps: int
    """Environment steps taken."""

    predicted_costs: tuple[float, ...]
    """Predicted goal cost of each plan."""

    distances: tuple[float, ...]
    """Distance to the goal at the start and after each of `steps` steps."""

    random_success: bool
    """Whether uniform-random actions reached the goal."""

    zero_success: bool
    """Whether zero actions reached the goal."""

    replay_success: bool | None = None
    """Whether the recorded actions, repeated from the start, did; None where they are not known."""

    demonstration: int | None = None
    """What its episode is a copy of; None where episodes are no copies, or this was not recorded."""

    @property
    def pair_name(self) -> tuple[int, int]:
        """What tells its pair from others of the same data."""
        return self.episode, self.start_step


def summarise(records: Sequence[EpisodeRecord]) -> dict[str, Any]:
    """Success over all pairs and over those not solved at the start, beside that of others on the same pairs.

    The others are both floors and, where they are known, the recorded actions. Rates are 0 to 1; over no episodes None.
    Where episodes are copies of demonstrations, intervals are by demonstration, and `families` says of how many. Where
    episodes have several pairs, they are by episode, and `different_episodes` says of how many.
    """
    hard = [record for record in records if not record.presolved]
    has_copies = all(record.demonstration is not None for record in records)
    has_several = len({record.episode for record in records}) < len(records)

    def together(record: EpisodeRecord) -> int | None:
        return record.demonstration if has_copies else record.episode if has_several else None

    every, nontrivial = (
        Proportion.of([r.success for r in part], [together(r) for r in part]) for part in (records, hard)
    )
    return {
        "success_rate": every.rate,
        "interval": every.interval,
        "episodes": every.trials,
        **({"families" if has_copies else "different_episodes": len(every.families)} if every.families else {}),
        "success_rate_nontrivial": nontrivial.rate,
        "interval_nontrivial": nontrivial.interval,
        "episodes_nontrivial": nontrivial.trials,
        "random_success_rate": Proportion.of([r.random_success for r in records]).rate,
        "random_success_rate_nontrivial": Proportion.of([r.random_success for r in hard]).rate,
        "zero_success_rate": Proportion.of([r.zero_success for r in records]).rate,
        "zero_success_rate_nontrivial": Proportion.of([r.zero_success for r in hard]).rate,
        **_replayed(records, hard),
        "presolved_share": Proportion.of([r.presolved for r in records]).rate,
    }


def _replayed(records: Sequence[EpisodeRecord], hard: Sequence[EpisodeRecord]) -> dict[str, float | None]:
    """Success of the recorded actions, where they are known; else nothing."""
    if any(record.replay_success is None for record in records):
        return {}
    return {
        "replay_success_rate": Proportion.of([bool(r.replay_success) for r in records]).rate,
        "replay_success_rate_nontrivial": Proportion.of([bool(r.replay_success) for r in hard]).rate,
    }


def compare_records(
    first: Sequence[Sequence[EpisodeRecord]], second: Sequence[Sequence[EpisodeRecord]]
) -> PairedDifference:
    """How much more often `first` succeeds than `second`: the records of each of their seeds, all of the same pairs.

    Pairs of one episode count together, and where episodes are copies, those of one demonstration.
    """
    pairs = [[record.pair_name for record in records] for records in (*first, *second)]
    if any(each != pairs[0] for each in pairs):
        raise InputError("Only evaluations on the same pairs can be compared; repeat one with the other's settings.")
    clusters = [record.episode if record.demonstration is None else record.demonstration for record in first[0]]
    ours, theirs = ([[record.success for record in records] for records in each] for each in (first, second))
    return compare_paired(ours, theirs, clusters)


def write_records(path: Path, records: Sequence[Any]) -> None:
    """Write dataclass instances, a JSON object per line; an existing file is replaced once the new one is complete."""
    lines = [json.dumps(dataclasses.asdict(record), allow_nan=False) for record in records]
    write_text(path, "".join(line + "\n" for line in lines))


def read_records(path: Path) -> list[EpisodeRecord]:
    """The records that `write_records` wrote."""
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            records.append(from_dict(EpisodeRecord, parse_json(line.decode())))
        except ValueError as error:  # an InputError is one
            raise InputError(f"{path}, line {number}, is no episode record: {error}") from error
    return records


BUDGET = 50
"""Environment steps per episode in the paper."""

SIDE_BY_SIDE = 200
"""Episodes simulated at once, limited by the memory of a renderer."""


@dataclass(frozen=True)
class Evaluation:
    """The results of an evaluation."""

    result: dict[str, Any]
    """The content of `result.json`."""

    records: tuple[EpisodeRecord, ...]
    """One per pair, in the order of the pairs."""

    outcome: ClosedLoop
    """What happened step by step; its actions replay the episodes (`animations.film`)."""


def without_model(envs: GoalEnvs, pairs: GoalPairs, actions: Float[Tensor, "B steps action"]) -> ClosedLoop:
    """The outcome of given actions, for which no frame is drawn."""
    return run_closed_loop(Unseen(envs), pairs, OpenLoop(actions), budget=actions.shape[1])


class Floor(NamedTuple):
    """Success on the same pairs without a model."""

    uniform: Bool[Tensor, "B"]
    nothing: Bool[Tensor, "B"]
    replayed: Bool[Tensor, "B"] | None


Floors = dict[tuple[Any, ...], Floor]
"""Floors of one data file by the pairs, budget and seed they were played with: several evaluations need them once."""


def _floor(envs: GoalEnvs, pairs: GoalPairs, action_dim: int, budget: int, seed: int) -> Floor:
    uniform = without_model(envs, pairs, uniform_actions(pairs, action_dim, budget, seed))
    nothing = without_model(envs, pairs, torch.zeros(len(pairs), budget, action_dim))
    replayed = None if pairs.recorded is None else without_model(envs, pairs, pairs.recorded).success
    return Floor(uniform.success, nothing.success, replayed)


def evaluate_planner(
    make_envs: Callable[[int], GoalEnvs],
    pairs: GoalPairs,
    planner: Planner,
    prior: Float[Tensor, "C"],
    *,
    budget: int = BUDGET,
    side_by_side: int = SIDE_BY_SIDE,
    on_search: Callable[[int], None] | None = None,
    floors: Floors | None = None,
) -> Evaluation:
    """Success of `planner` on `pairs`; random, no and recorded actions on the same pairs.

    `side_by_side` pairs are played at a time, in environments that `make_envs` makes for so many. Every pair has noise
    of its own, so the parts it is cut into change nothing but rounding. `prior` is π_0 over the model's support, from
    which the selector's shift is measured. `on_search` is called after each search for a group of episodes, with their
    number. What is in `floors` is not played again, and what is played is added.
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
        played.append(_play(envs, part, RecedingHorizon(planner, on_search), budget, {} if floors is None else floors))
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
    """The outcome of a group of pairs."""

    records: tuple[EpisodeRecord, ...]
    outcome: ClosedLoop
    q: Float[Tensor, "B C"]
    seconds_planning: float


def _joined(outcomes: Sequence[ClosedLoop]) -> ClosedLoop:
    return ClosedLoop(*(torch.cat([getattr(each, part.name) for each in outcomes]) for part in fields(ClosedLoop)))


def _play(envs: GoalEnvs, pairs: GoalPairs, policy: RecedingHorizon, budget: int, floors: Floors) -> _Played:
    began, planner = time.perf_counter(), policy.planner
    outcome = run_closed_loop(envs, pairs, policy, budget=budget)
    planned = time.perf_counter()
    seed = planner.config.seed
    asked = (pairs.stream_names, pairs.episodes, pairs.start_steps, pairs.goal_steps, budget, seed)
    if asked not in floors:
        floors[asked] = _floor(envs, pairs, len(planner.action_mean), budget, seed)
    floor = floors[asked]
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
            random_success=bool(floor.uniform[b]),
            zero_success=bool(floor.nothing[b]),
            replay_success=None if floor.replayed is None else bool(floor.replayed[b]),
            demonstration=None if pairs.families is None else pairs.families[b],
        )
        for b in range(len(pairs))
    )
    return _Played(records, outcome, policy.q, planned - began)
