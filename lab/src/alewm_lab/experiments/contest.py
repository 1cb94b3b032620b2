"""Rivals with several configurations each: validation pairs find the best of each, which then meet the test pairs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from alewm.sweeps.choice import TASK_TITLES, Choice
from alewm.sweeps.results import Candidate, Results, Stage, select, selecting, unique
from alewm.sweeps.run import Run
from alewm.sweeps.work import Evaluation, Work
from alewm.tables import Cell, mark_best

Groups = Mapping[tuple[str, str], tuple[Run, ...]]
"""Runs over seeds, by task and rival."""


@dataclass(frozen=True)
class Contest:
    """What each rival may be on each task; a lone configuration needs no selection."""

    choice: Choice
    candidates: Mapping[tuple[str, str], Sequence[Candidate]]
    """By task and rival."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """All that are trained."""
        return unique([run for group in self.candidates.values() for each in group for run in each.runs])

    def chosen(self, results: Results) -> Groups:
        """The best of each rival, by validation pairs."""
        validation = self.choice.scale.evaluation("validation")
        return {key: select(group, results, validation).runs for key, group in self.candidates.items()}

    def stages(self, measured: Callable[[Run], Sequence[Work]] = lambda _: ()) -> tuple[Stage, Stage]:
        """Selecting; then planning to test pairs and whatever else is `measured` on a chosen run."""
        validation, test = self.choice.scale.evaluation("validation"), self.choice.scale.evaluation()
        compared = [group for group in self.candidates.values() if len(group) > 1]
        to_validate = unique([run for group in compared for each in group for run in each.runs])

        def of_chosen(results: Results) -> list[Work]:
            runs = [run for group in self.chosen(results).values() for run in group]
            return [*(Evaluation(run, test) for run in runs), *(work for run in runs for work in measured(run))]

        num_chosen = len(self.candidates) * len(self.choice.seeds)
        works_per_run = 1 + len(measured(self.runs[0]))
        return (
            selecting(to_validate, validation),
            Stage("planning to test pairs", of_chosen, num_chosen * works_per_run),
        )


def success_columns(
    choice: Choice, tasks: Sequence[str], rivals: Sequence[str], groups: Groups, results: Results
) -> dict[str, list[Cell]]:
    """By title: each task's test success of every rival, the best marked, and planning capacity."""
    test, columns = choice.scale.evaluation(), {}
    for task in tasks:
        compared = [groups[task, rival] for rival in rivals]
        rates = [results.over_seeds(runs, test).mean for runs in compared]
        success = [results.success_cell(runs, test) for runs in compared]
        columns[f"{TASK_TITLES[task]} SR (%)"] = mark_best(success, rates)
        columns[f"{TASK_TITLES[task]} E[K]"] = [results.capacity_cell(runs, test) for runs in compared]
    return columns
