"""Rivals with several configurations each: validation pairs select one of each, which is then planned to test pairs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from alewm.sweeps.grid import Runs
from alewm.sweeps.library import EvaluationWork, TrainingRun, Work, unique
from alewm.sweeps.sweep import select
from alewm.tables import Cell
from alewm_lab.experiments.experiment import Experiment, Outcome, Results
from alewm_lab.experiments.request import TASK_TITLES, Request
from alewm_lab.table_formats import mark_best

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
        return {key: select(group, results.library, validation) for key, group in self.configurations.items()}

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


def success_columns(
    request: Request, tasks: Sequence[str], rivals: Sequence[str], groups: Groups, results: Results
) -> dict[str, list[Cell]]:
    """By title: each task's test success of every rival, the best marked, and planning capacity."""
    test, columns = request.scale.evaluation(), {}
    for task in tasks:
        compared = [groups[task, rival] for rival in rivals]
        rates = [results.over_seeds(runs, test).mean for runs in compared]
        success = [results.success_cell(runs, test) for runs in compared]
        columns[f"{TASK_TITLES[task]} SR (%)"] = mark_best(success, rates)
        columns[f"{TASK_TITLES[task]} E[K]"] = [results.capacity_cell(runs, test) for runs in compared]
    return columns
