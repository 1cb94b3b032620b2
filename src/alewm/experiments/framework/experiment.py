"""An experiment is a value: the runs it needs, the work that follows, and a function from results to an outcome."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from alewm.experiments.framework.choice import Choice
from alewm.experiments.framework.results import Results
from alewm.experiments.framework.run import Run
from alewm.experiments.framework.work import Work
from alewm.presentation.tables import Table
from alewm.presentation.theme import Draw


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
    """One line for `alewm experiment --list`."""
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
