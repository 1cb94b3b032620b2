"""What run folders say about finished work; experiments read nothing else."""

from collections.abc import Sequence
from typing import Any

from alewm.evaluation.records import EpisodeRecord, read_records
from alewm.evaluation.settings import EvaluationSettings
from alewm.evaluation.statistics import Spread
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.run import Run
from alewm.experiments.framework.work import Evaluation, Measurement, Training
from alewm.presentation.tables import Cell
from alewm.runs.metrics import read_metrics


class NotThereYetError(LookupError):
    """A result was asked for that no run folder has."""


class Results:
    """Read-only view of a library."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def evaluation(self, run: Run, settings: EvaluationSettings) -> dict[str, Any]:
        """The content of its result.json."""
        found = Evaluation(run, settings).result(self.library)
        if found is None:
            raise NotThereYetError(f"{run.name} has not been evaluated with {settings.name() or 'default settings'}.")
        return found

    def records(self, run: Run, settings: EvaluationSettings) -> list[EpisodeRecord]:
        """Its episodes."""
        self.evaluation(run, settings)
        return read_records(Evaluation(run, settings).folder(self.library) / "episodes.jsonl")

    def measured(self, measurement: Measurement) -> dict[str, Any]:
        """What a measurement found."""
        found = measurement.result(self.library)
        if found is None:
            raise NotThereYetError(f"{measurement.name} of {measurement.run.name} has not been measured.")
        return found

    def metrics(self, run: Run, kind: str) -> list[dict[str, Any]]:
        """The lines of its metrics.jsonl of one kind: train, validation or latent."""
        entries = read_metrics(self.library.folder(run) / "metrics.jsonl")
        return [entry for entry in entries if entry.get("kind") == kind]

    def over_seeds(self, runs: Sequence[Run], settings: EvaluationSettings, name: str = "success_rate") -> Spread:
        """Mean and SEM over the runs of one number of their results."""
        return Spread.of([float(self.evaluation(run, settings)[name]) for run in runs])

    def interval(self, runs: Sequence[Run], settings: EvaluationSettings) -> list[float]:
        """Wilson's interval of the pairs of the first of `runs`, for where there is no other."""
        interval: list[float] = self.evaluation(runs[0], settings)["interval"]
        return interval

    def success_cell(self, runs: Sequence[Run], settings: EvaluationSettings) -> Cell:
        """Success in percent over `runs`, with the commands behind it."""
        text = self.over_seeds(runs, settings).percent()
        return Cell(text, commands=self.commands(runs, settings))

    def capacity_cell(self, runs: Sequence[Run], settings: EvaluationSettings) -> Cell:
        """Planned capacity, its mean over episodes, then over `runs`."""
        text = self.over_seeds(runs, settings, "mean_capacity").shown()
        return Cell(text, commands=self.commands(runs, settings))

    def commands(self, runs: Sequence[Run], settings: EvaluationSettings) -> tuple[str, ...]:
        """What makes the evaluation of `runs` with `settings`, from data files on."""
        return tuple(work.command(self.library) for run in runs for work in (Training(run), Evaluation(run, settings)))
