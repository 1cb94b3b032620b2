"""An experiment: a list of runs and a function from their results to tables and figures.

In a `Contest` each rival has several configurations: validation pairs select one, which is then planned to test pairs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from alewm.evaluation.held_out import read_measurement, write_measurement
from alewm.evaluation.settings import EvaluationSettings
from alewm.evaluation.statistics import Spread
from alewm.evaluation.success import EpisodeRecord, read_records
from alewm.runs.folder import read_metrics
from alewm.sweeps.grid import Runs
from alewm.sweeps.library import (
    EvaluationWork,
    Library,
    NotThereYetError,
    TrainingRun,
    TrainingWork,
    Work,
    over_seeds,
    unique,
)
from alewm.sweeps.sweep import select_configuration
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw
from alewm_lab.experiments.request import TASK_TITLES, Request
from alewm_lab.presentation import mark_best

Measure = Callable[[Path, Path, torch.device, Mapping[str, Any]], dict[str, Any]]
"""From a run's folder, its data file, a device and options to plain JSON values."""


@dataclass(frozen=True)
class MeasurementWork:
    """Something computed on a trained model, kept below RUN/measurements."""

    run: TrainingRun
    name: str
    """What it is called; its folder."""
    measure: Measure
    """A function at the top of a module, so that other processes find it."""
    options: tuple[tuple[str, Any], ...] = ()
    """What it depends on besides the run."""
    made_by: str = ""
    """The command of the experiment that makes it."""

    def result(self, library: Library) -> dict[str, Any] | None:
        """What it found with these options, or None before it has been done."""
        return read_measurement(library.folder(self.run), self.name, dict(self.options))

    def is_done(self, library: Library) -> bool:
        return self.result(library) is not None

    def perform(self, library: Library, device: torch.device, command: str | None = None) -> None:
        """Measures; the result names the experiment's command."""
        data = library.data_path(self.run.task)
        options = dict(self.options)
        measured = self.measure(library.folder(self.run), data, device, options)
        write_measurement(library.folder(self.run), self.name, options, measured, self.made_by or command)

    def command(self, library: Library) -> str:
        """The same from a shell: the experiment itself, which reuses everything else."""
        return f"{self.made_by}  # {self.name} of {library.folder(self.run)}"


class Results:
    """The results of finished work, read from run folders."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def evaluation(self, run: TrainingRun, settings: EvaluationSettings) -> dict[str, Any]:
        """The content of its result.json."""
        return EvaluationWork(run, settings).found(self.library)

    def records(self, run: TrainingRun, settings: EvaluationSettings) -> list[EpisodeRecord]:
        """Its episodes."""
        self.evaluation(run, settings)
        return read_records(EvaluationWork(run, settings).folder(self.library) / "episodes.jsonl")

    def measured(self, measurement: MeasurementWork) -> dict[str, Any]:
        """What a measurement found."""
        found = measurement.result(self.library)
        if found is None:
            raise NotThereYetError(f"{measurement.name} of {measurement.run.name} has not been measured.")
        return found

    def metrics(self, run: TrainingRun, kind: str) -> list[dict[str, Any]]:
        """The lines of its metrics.jsonl of one kind: train, validation or latent."""
        entries = read_metrics(self.library.folder(run) / "metrics.jsonl")
        return [entry for entry in entries if entry.get("kind") == kind]

    def over_seeds(
        self, runs: Sequence[TrainingRun], settings: EvaluationSettings, name: str = "success_rate"
    ) -> Spread:
        """Mean and SEM over the runs of one number of their results."""
        return over_seeds(runs, settings, self.library, name)

    def interval(self, runs: Sequence[TrainingRun], settings: EvaluationSettings) -> list[float]:
        """The interval of the pairs of the first of `runs`, for where there is no other."""
        interval: list[float] = self.evaluation(runs[0], settings)["interval"]
        return interval

    def floors(self, run: TrainingRun, settings: EvaluationSettings) -> list[str]:
        """Success in percent of random actions, of none, and before the first step, on the pairs that `run` met."""
        found = self.evaluation(run, settings)
        return [f"{100 * found[key]:.1f}" for key in ("random_success_rate", "zero_success_rate", "presolved_share")]

    def success_cell(self, runs: Sequence[TrainingRun], settings: EvaluationSettings) -> Cell:
        """Success in percent over `runs`, with the commands behind it."""
        text = self.over_seeds(runs, settings).percent()
        return Cell(text, commands=self.commands(runs, settings))

    def capacity_cell(self, runs: Sequence[TrainingRun], settings: EvaluationSettings) -> Cell:
        """Planned capacity, its mean over episodes, then over `runs`."""
        text = self.over_seeds(runs, settings, "mean_capacity").shown()
        return Cell(text, commands=self.commands(runs, settings))

    def commands(self, runs: Sequence[TrainingRun], settings: EvaluationSettings) -> tuple[str, ...]:
        """The commands that train and evaluate `runs` with `settings`."""
        return tuple(
            work.command(self.library) for run in runs for work in (TrainingWork(run), EvaluationWork(run, settings))
        )

    def training_commands(self, runs: Iterable[TrainingRun]) -> tuple[str, ...]:
        """The commands that train `runs`."""
        return tuple(TrainingWork(run).command(self.library) for run in runs)

    def measuring_commands(self, measurements: Iterable[MeasurementWork]) -> tuple[str, ...]:
        """The commands that train what was measured, and measure it."""
        return tuple(work.command(self.library) for each in measurements for work in (TrainingWork(each.run), each))


@dataclass(frozen=True)
class ExperimentFigure:
    """A figure with its caption."""

    name: str
    """Its file name."""
    caption: str
    """What is shown, at which scale, over which seeds."""
    draw: Draw
    commands: tuple[str, ...] = ()
    """What to type, in order, to have its data again."""


@dataclass(frozen=True)
class Animation:
    """An animation with its caption."""

    name: str
    caption: str
    gif: bytes


@dataclass(frozen=True)
class Outcome:
    """What an experiment shows."""

    tables: tuple[Table, ...] = ()
    drawings: tuple[ExperimentFigure, ...] = ()
    films: tuple[Animation, ...] = ()
    findings: tuple[str, ...] = ()
    """Sentences with numbers, computed."""

    def noting(self, note: str) -> "Outcome":
        """The same with `note` at the end of every caption."""
        if not note:
            return self
        return replace(
            self,
            tables=tuple(replace(table, caption=f"{table.caption} {note}") for table in self.tables),
            drawings=tuple(replace(drawing, caption=f"{drawing.caption} {note}") for drawing in self.drawings),
            films=tuple(replace(film, caption=f"{film.caption} {note}") for film in self.films),
        )


@dataclass(frozen=True)
class Experiment:
    """The runs to train, the work that follows, and a function from their results to tables and figures."""

    name: str
    request: Request
    runs: tuple[TrainingRun, ...]
    outcome: Callable[[Results], Outcome]
    works: tuple[Work, ...] = ()
    """What is evaluated and measured on trained runs."""
    tests: Callable[[Results], Sequence[Work]] | None = None
    """What is done with the runs that validation selects; NotThereYetError while a validation is missing."""
    num_tests: int = 0
    """How many `tests` there are at most, for a dry run."""

    def __post_init__(self) -> None:
        budgets = {(run.config.training.num_steps, run.config.training.batch_size) for run in self.runs}
        assert len(budgets) <= 1, f"{self.name} would mix budgets in one table: {sorted(map(str, budgets))}"

    @property
    def data_sets(self) -> set[str]:
        """The names of all data that is needed."""
        return {name for run in self.runs for name in run.data_sets}

    def known_works(self, results: Results) -> tuple[list[Work], bool]:
        """All work that is known by now, and whether that is everything."""
        if self.tests is None:
            return list(self.works), True
        try:
            return [*self.works, *self.tests(results)], True
        except NotThereYetError:
            return list(self.works), False


@dataclass(frozen=True)
class Recipe:
    """How to build an experiment from what was asked, and what may be asked."""

    name: str
    summary: str
    """One line for `alewm-lab experiment --list`."""
    build: Callable[[Request], Experiment]
    seeds: tuple[int, ...] | None = None
    """Seeds unless asked otherwise, where they are not the scale's."""
    compares_configurations: bool = False
    """Whether it selects among configurations, so that there is something to search."""
    chooses_lewm_width: bool = False
    """Whether LeWM's width is among what it selects."""


Groups = Mapping[tuple[str, str], Runs]
"""Runs over seeds, by task and rival."""

Key = TypeVar("Key")


@dataclass(frozen=True)
class Contest(Generic[Key]):
    """The configurations of each rival; a lone configuration needs no selection."""

    request: Request
    configurations: Mapping[Key, Sequence[Runs]]
    """By rival."""

    @property
    def runs(self) -> tuple[TrainingRun, ...]:
        """All that are trained."""
        return unique([run for group in self.configurations.values() for runs in group for run in runs])

    @property
    def validations(self) -> tuple[EvaluationWork, ...]:
        """What selection looks at."""
        validation = self.request.scale.evaluation("validation")
        compared = [group for group in self.configurations.values() if len(group) > 1]
        runs = unique([run for group in compared for runs in group for run in runs])
        return tuple(EvaluationWork(run, validation) for run in runs)

    def chosen(self, results: Results) -> dict[Key, Runs]:
        """The best configuration of each rival, by validation pairs."""
        validation = self.request.scale.evaluation("validation")
        return {
            key: select_configuration(group, results.library, validation) for key, group in self.configurations.items()
        }

    def experiment(
        self,
        name: str,
        outcome: Callable[[Results, dict[Key, Runs]], Outcome],
        works: Callable[[TrainingRun], Sequence[Work]],
    ) -> Experiment:
        """Validate, then do `works` with the chosen runs; `outcome` shows them."""

        def tests(results: Results) -> list[Work]:
            runs = unique([run for group in self.chosen(results).values() for run in group])
            return [work for run in runs for work in works(run)]

        num_tests = len(self.configurations) * len(self.request.seeds) * len(works(self.runs[0]))
        return Experiment(
            name,
            self.request,
            self.runs,
            lambda results: outcome(results, self.chosen(results)),
            self.validations,
            tests,
            num_tests,
        )


RunsWithSettings = tuple[Runs, EvaluationSettings]
"""Runs over seeds, and how they are planned with."""


def success_cells(compared: Sequence[RunsWithSettings], results: Results) -> list[Cell]:
    """Success of each, the best marked."""
    rates = [results.over_seeds(*each).mean for each in compared]
    return mark_best([results.success_cell(*each) for each in compared], rates)


def success_columns(task: str, compared: Sequence[RunsWithSettings], results: Results) -> dict[str, list[Cell]]:
    """By title: one task's success, the best marked, and planning capacity."""
    return {
        f"{TASK_TITLES[task]} SR (%)": success_cells(compared, results),
        f"{TASK_TITLES[task]} E[K]": [results.capacity_cell(*each) for each in compared],
    }


def rows_of(names: Sequence[str], columns: Mapping[str, Sequence[Cell]]) -> list[Row]:
    """The rows called `names` of a table that was made column by column."""
    return [[name, *(column[index] for column in columns.values())] for index, name in enumerate(names)]
