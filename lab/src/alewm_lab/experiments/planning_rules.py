"""The same models planned in several ways: with imposed capacities, other goal costs, other capacity rules."""

from alewm.sweeps.library import EvaluationWork
from alewm.tables import Cell, Row, Table
from alewm_lab.experiments.experiment import Experiment, ExperimentFigure, Outcome, Recipe, Results
from alewm_lab.experiments.panels import Curve, Point, success_curves
from alewm_lab.experiments.request import TASK_TITLES, Request
from alewm_lab.table_formats import mark_best


def build_prefix_sweep(request: Request) -> Experiment:
    """The selected models of one width, evaluated with the selector and at every capacity."""
    (width,) = request.widths(192)
    groups = {task: request.over_seeds(request.alewm, task, width) for task in request.tasks(*TASK_TITLES)}
    runs = tuple(run for group in groups.values() for run in group)
    ks = runs[0].config.model.capacities
    modal = request.scale.evaluation()
    fixed = {k: request.scale.evaluation(capacity=str(k)) for k in ks}

    def outcome(results: Results) -> Outcome:
        rows: list[Row] = []
        curves = []
        for task, group in groups.items():
            cells = [results.success_cell(group, settings) for settings in fixed.values()]
            own = results.success_cell(group, modal)
            capacity = results.over_seeds(group, modal, "mean_capacity")
            rates = {k: results.over_seeds(group, settings) for k, settings in fixed.items()}
            best = max(rate.mean for rate in rates.values())
            marked = [Cell(c.text, rates[k].mean == best, c.commands) for k, c in zip(ks, cells, strict=True)]
            rows.append([TASK_TITLES[task], *marked, own, capacity.shown()])
            points = tuple(Point.of(k, rate, results.interval(group, fixed[k])) for k, rate in rates.items())
            star = Point.at(capacity, results.over_seeds(group, modal), results.interval(group, modal))
            curves.append(Curve(TASK_TITLES[task], points, star))
        head = ["task", *(f"k = {k}" for k in ks), "selector", "selector's E[K]"]
        text = (
            "Test success (%, mean ± SEM over seeds) of ALeWM planned with each fixed capacity and with the capacity "
            "its selector chooses; no retraining. Bold: the best fixed capacity, which only the test pairs reveal."
        )
        table = Table.of("prefix-sweep", request.caption(text), head, rows)
        caption = request.caption(
            "Test success of ALeWM per fixed prefix (lines) and with its selector (stars); bars are SEM, or for one "
            "seed the 95 % interval."
        )
        commands = tuple(c for settings in (modal, *fixed.values()) for c in results.commands(runs, settings))
        drawing = ExperimentFigure("prefix-sweep", caption, success_curves(curves), tuple(dict.fromkeys(commands)))
        return Outcome((table,), (drawing,))

    works = [EvaluationWork(run, settings) for run in runs for settings in fixed.values()]
    works += [EvaluationWork(run, modal, num_animations=request.scale.num_animations) for run in runs]
    return Experiment("prefix-sweep", request, runs, outcome, tuple(works))


PREFIX_SWEEP = Recipe(
    "prefix-sweep", "success of ALeWM with its selector overridden by each supported capacity", build_prefix_sweep
)


def build_goal_cost(request: Request) -> Experiment:
    """The selected models of one width, planned twice."""
    (width,) = request.widths(192)
    groups = {task: request.over_seeds(request.alewm, task, width) for task in request.tasks(*TASK_TITLES)}
    runs = tuple(run for group in groups.values() for run in group)
    costs = {
        "full latent (d_max)": request.scale.evaluation(goal_cost="full"),
        "active prefix (K)": request.scale.evaluation(),
    }

    def outcome(results: Results) -> Outcome:
        columns = []
        for group in groups.values():
            cells = [results.success_cell(group, settings) for settings in costs.values()]
            columns.append(mark_best(cells, [results.over_seeds(group, s).mean for s in costs.values()]))
        rows: list[Row] = [[name, *(column[index] for column in columns)] for index, name in enumerate(costs)]
        head = ["goal cost over", *(f"{TASK_TITLES[task]} SR (%)" for task in groups)]
        text = "Test success (mean ± SEM over seeds) of ALeWM, the goal compared on the whole latent or on the prefix."
        return Outcome((Table.of("goal-cost", request.caption(text), head, rows),))

    works = [EvaluationWork(run, settings) for run in runs for settings in costs.values()]
    return Experiment("goal-cost", request, runs, outcome, tuple(works))


GOAL_COST = Recipe("goal-cost", "success with the active-prefix and with the full-width goal cost", build_goal_cost)


def build_selection_rules(request: Request) -> Experiment:
    """The selected models of one width, planned under every rule."""
    (width,) = request.widths(192)
    groups = {task: request.over_seeds(request.alewm, task, width) for task in request.tasks(*TASK_TITLES)}
    runs = tuple(run for group in groups.values() for run in group)
    evaluation = request.scale.evaluation
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
        return Outcome((Table.of("selection-rules", request.caption(text), head, rows),))

    works = [EvaluationWork(run, settings) for run in runs for settings in rules.values()]
    return Experiment("selection-rules", request, runs, outcome, tuple(works))


SELECTION_RULES = Recipe(
    "selection-rules", "modal, sampled, best predicted cost, chosen anew at every plan", build_selection_rules
)
