"""What run folders say about finished work; experiments read nothing else.

An experiment is a value: the runs it needs, the work that follows, and a function from results to an outcome.

Choosing a configuration on validation pairs alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from alewm.evaluation.records import EpisodeRecord, read_records
from alewm.evaluation.settings import EvaluationSettings
from alewm.evaluation.statistics import Spread
from alewm.runs.folder import read_metrics
from alewm.sweeps.choice import Choice
from alewm.sweeps.library import Library
from alewm.sweeps.run import Run
from alewm.sweeps.work import Evaluation, Measurement, Training, Work
from alewm.tables import Cell, Table
from alewm.theme import Draw


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
        """The interval of the pairs of the first of `runs`, for where there is no other."""
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


@dataclass(frozen=True)
class Drawing:
    """A figure with its caption."""

    name: str
    """Its file name."""
    caption: str
    """What is shown, at which scale, over which seeds."""
    draw: Draw
    commands: tuple[str, ...] = ()
    """What to type, in order, to have its data again."""


@dataclass(frozen=True)
class Film:
    """An animation with its caption."""

    name: str
    caption: str
    gif: bytes


@dataclass(frozen=True)
class Outcome:
    """What an experiment shows."""

    tables: tuple[Table, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    films: tuple[Film, ...] = ()
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
class Stage:
    """Work that depends on the results of earlier stages."""

    title: str
    works: Callable[[Results], Sequence[Work]]
    """Raises NotThereYetError while an earlier stage is unfinished."""
    most: int
    """Units of work at most, for whoever plans ahead."""


@dataclass(frozen=True)
class Experiment:
    """Everything to be done, decided before anything is done."""

    name: str
    choice: Choice
    runs: tuple[Run, ...]
    stages: tuple[Stage, ...]
    outcome: Callable[[Results], Outcome]

    def __post_init__(self) -> None:
        budgets = {(run.config.training.num_steps, run.config.training.batch_size) for run in self.runs}
        assert len(budgets) <= 1, f"{self.name} would mix budgets in one table: {sorted(map(str, budgets))}"

    @property
    def data_sets(self) -> set[str]:
        """The names of all data that is needed."""
        return {name for run in self.runs for name in run.data_sets}


@dataclass(frozen=True)
class Recipe:
    """An experiment before it is known what exactly is asked."""

    name: str
    summary: str
    """One line for `alewm-lab experiment --list`."""
    build: Callable[[Choice], Experiment]
    seeds: tuple[int, ...] | None = None
    """Seeds unless asked otherwise, where they are not the scale's."""
    compares_configurations: bool = False
    """Whether it selects among configurations, so that there is something to search."""
    chooses_lewm_width: bool = False
    """Whether LeWM's width is among what it selects."""


def unique(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs without repetition: two presets may name one configuration."""
    return tuple({run.key: run for run in reversed(runs)}.values())[::-1]


@dataclass(frozen=True)
class Candidate:
    """One configuration, trained with several seeds."""

    runs: tuple[Run, ...]

    @property
    def weight(self) -> float:
        """Its λ."""
        return self.runs[0].config.objective.regularizer_weight


def selecting(runs: Sequence[Run], validation: EvaluationSettings) -> Stage:
    """The stage in which `runs` plan to the validation pairs that `select` looks at."""
    works = [Evaluation(run, validation) for run in runs]
    return Stage("selecting on validation pairs", lambda _: works, len(works))


def select(candidates: Sequence[Candidate], results: Results, settings: EvaluationSettings) -> Candidate:
    """The candidate that succeeds most often; ties go to the smaller capacity or width, then to the smaller λ.

    Successes are counted, not averaged: every candidate meets the same pairs with as many seeds, and counts tie
    exactly where means would differ by rounding.
    """
    assert settings.split == "validation", "selection looks at validation pairs only"
    assert len({len(candidate.runs) for candidate in candidates}) == 1, "candidates have different numbers of seeds"
    if len(candidates) == 1:
        return candidates[0]

    def preference(candidate: Candidate) -> tuple[int, float, float]:
        found = [results.evaluation(run, settings) for run in candidate.runs]
        successes = sum(round(each["success_rate"] * each["episodes"]) for each in found)
        capacity = sum(each["mean_capacity"] for each in found) / len(found)
        return -successes, capacity, candidate.weight

    return min(candidates, key=preference)
