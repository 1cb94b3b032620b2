"""Comparing the goal on the planned prefix, or on the whole latent; same models, same masked rollouts."""

from alewm.sweeps.choice import TASK_TITLES, Choice
from alewm.sweeps.results import Experiment, Outcome, Recipe, Results, Stage
from alewm.sweeps.work import Evaluation
from alewm.tables import Row, Table, mark_best


def build(choice: Choice) -> Experiment:
    """The selected models of one width, planned twice."""
    (width,) = choice.widths(192)
    groups = {task: choice.over_seeds(choice.alewm, task, width) for task in choice.tasks(*TASK_TITLES)}
    runs = tuple(run for group in groups.values() for run in group)
    costs = {
        "full latent (d_max)": choice.scale.evaluation(goal_cost="full"),
        "active prefix (K)": choice.scale.evaluation(),
    }

    def outcome(results: Results) -> Outcome:
        columns = []
        for group in groups.values():
            cells = [results.success_cell(group, settings) for settings in costs.values()]
            columns.append(mark_best(cells, [results.over_seeds(group, s).mean for s in costs.values()]))
        rows: list[Row] = [[name, *(column[index] for column in columns)] for index, name in enumerate(costs)]
        head = ["goal cost over", *(f"{TASK_TITLES[task]} SR (%)" for task in groups)]
        text = "Test success (mean ± SEM over seeds) of ALeWM, the goal compared on the whole latent or on the prefix."
        return Outcome((Table.of("goal-cost", choice.caption(text), head, rows),))

    works = [Evaluation(run, settings) for run in runs for settings in costs.values()]
    stage = Stage("planning to test pairs with both costs", lambda _: works, len(works))
    return Experiment("goal-cost", choice, runs, (stage,), outcome)


RECIPE = Recipe("goal-cost", "success with the active-prefix and with the full-width goal cost", build)
