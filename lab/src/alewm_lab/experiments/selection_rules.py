"""How the capacity of a plan is decided: four rules beside the paper's, on the same models."""

from alewm.sweeps.choice import TASK_TITLES, Choice
from alewm.sweeps.results import Experiment, Outcome, Recipe, Results, Stage
from alewm.sweeps.work import Evaluation
from alewm.tables import Cell, Row, Table, mark_best


def build(choice: Choice) -> Experiment:
    """The selected models of one width, planned under every rule."""
    (width,) = choice.widths(192)
    groups = {task: choice.over_seeds(choice.alewm, task, width) for task in choice.tasks(*TASK_TITLES)}
    runs = tuple(run for group in groups.values() for run in group)
    evaluation = choice.scale.evaluation
    rules = {
        "modal, once (the paper's)": evaluation(),
        "modal, at every plan": evaluation(capacity="modal-every-plan"),
        "sampled from q": evaluation(capacity="sample"),
        "lowest predicted cost, on the prefix": evaluation(capacity="best-of"),
        "lowest predicted cost, on the whole latent": evaluation(capacity="best-of", goal_cost="full"),
    }

    def outcome(results: Results) -> Outcome:
        columns: list[list[Cell]] = []
        head = ["rule"]
        for task, group in groups.items():
            rates = [results.over_seeds(group, settings).mean for settings in rules.values()]
            columns.append(mark_best([results.success_cell(group, s) for s in rules.values()], rates))
            columns.append([results.capacity_cell(group, settings) for settings in rules.values()])
            head += [f"{TASK_TITLES[task]} SR (%)", f"{TASK_TITLES[task]} E[K]"]
        rows: list[Row] = [[rule, *(column[index] for column in columns)] for index, rule in enumerate(rules)]
        text = (
            "Test success and planning capacity (mean ± SEM over seeds) of ALeWM under several rules for the capacity. "
            "Where it is chosen at every plan, E[K] is that of an episode's last plan. Predicted costs of different "
            "prefixes compare different coordinates unless the whole latent is compared; planning with all capacities "
            "costs as many searches."
        )
        return Outcome((Table.of("selection-rules", choice.caption(text), head, rows),))

    works = [Evaluation(run, settings) for run in runs for settings in rules.values()]
    stage = Stage("planning to test pairs under every rule", lambda _: works, len(works))
    return Experiment("selection-rules", choice, runs, (stage,), outcome)


RECIPE = Recipe("selection-rules", "modal, sampled, best predicted cost, chosen anew at every plan", build)
