"""What is kept of every episode, and the summary that becomes `result.json`."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alewm.config import from_dict
from alewm.errors import InputError
from alewm.evaluation.statistics import PairedDifference, Proportion, compare_paired
from alewm.files import parse_json, write_text


@dataclass(frozen=True)
class EpisodeRecord:
    """One evaluated pair, complete enough to plan it again alone."""

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
    """Whether doing nothing did."""

    replay_success: bool | None = None
    """Whether the recorded actions, repeated from the start, did; None where they are not known."""

    demonstration: int | None = None
    """What its episode is a copy of; None where episodes are no copies, or this was not recorded."""


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
    pairs = [[(record.episode, record.start_step) for record in records] for records in (*first, *second)]
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
