"""One trial of a sweep: a run to train and evaluate, and how far it is, read from files that every machine sees."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alewm.evaluation.settings import EvaluationSettings
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.run import Run
from alewm.experiments.framework.work import Evaluation, Training, Work

_TAIL_BYTES = 8192


@dataclass(frozen=True)
class Trial:
    """A configuration with one seed."""

    run: Run
    works: tuple[Work, ...]
    """Training, then the evaluation if there is to be one."""

    def is_done(self, library: Library) -> bool:
        """Whether nothing is left to do."""
        return all(work.is_done(library) for work in self.works)


def make_trials(
    runs: Sequence[Run], settings: EvaluationSettings | None, *, num_ranks: int = 1, num_threads: int = 0
) -> list[Trial]:
    """A trial per run; `settings` say how each is evaluated, on validation pairs and no others."""
    assert settings is None or settings.split == "validation", "a sweep selects, so it looks at validation pairs only"
    evaluations = {run: (Evaluation(run, settings),) if settings is not None else () for run in runs}
    return [Trial(run, (Training(run, num_ranks, num_threads), *evaluations[run])) for run in runs]


@dataclass(frozen=True)
class Progressed:
    """How far a run's training is."""

    step: int = 0
    loss: float | None = None


def progress_of(folder: Path) -> Progressed:
    """What the last complete line of the run's metrics says."""
    try:
        with (folder / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return Progressed()
    for line in reversed(lines):
        record = _record(line)
        if record.get("kind") == "train":
            return Progressed(record["step"], record["loss"])
    return Progressed()


def _record(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}  # being written, or cut by where the tail begins
    return found if isinstance(found, dict) else {}
