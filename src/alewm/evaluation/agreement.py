"""An evaluation done again: how many episodes ended as the published records say."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alewm.evaluation.records import EpisodeRecord, read_records
from alewm.evaluation.settings import EvaluationSettings
from alewm.files import read_json


@dataclass(frozen=True)
class Agreement:
    """Episodes that are in both evaluations, and those among them that ended alike."""

    episodes: int
    same_outcome: int

    def __str__(self) -> str:
        return f"{self.same_outcome} of {self.episodes} episodes ended as published."


def agreement(records: Sequence[EpisodeRecord], published: Sequence[EpisodeRecord]) -> Agreement:
    """How many of `records` have the success and the capacity of the `published` record of the same pair."""
    known = {(record.episode, record.start_step): record for record in published}
    common = [(record, known[key]) for record in records if (key := (record.episode, record.start_step)) in known]
    return Agreement(len(common), sum((a.success, a.capacity) == (b.success, b.capacity) for a, b in common))


def agreement_with_published(
    run: Path, settings: EvaluationSettings, records: Sequence[EpisodeRecord]
) -> Agreement | None:
    """The agreement with the records in `run`; None if it has none that were made in the same way.

    The number of episodes may differ: an episode is planned alike whichever others there are.
    """
    result, path = run / "result.json", run / "episodes.jsonl"
    if not (result.is_file() and path.is_file()):
        return None
    if _without_count(read_json(result).get("evaluated", {})) != _without_count(settings.identity()):
        return None
    return agreement(records, read_records(path))


def _without_count(evaluated: dict[str, Any]) -> dict[str, Any]:
    ignored = ("num_episodes", "checkpoint", "fingerprint")
    return {name: value for name, value in evaluated.items() if name not in ignored}
