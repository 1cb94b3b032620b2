"""Comparisons: capacity rules and goal costs of one model, and rival methods (nested dropout, SIGReg)."""

from collections.abc import Mapping, Sequence
from itertools import chain

from matplotlib.figure import Figure

from alewm.evaluation.settings import EvaluationSettings
from alewm.evaluation.statistics import Spread
from alewm.sweeps.grid import DEGREE, MULTIPLIER, WEIGHT, Runs
from alewm.sweeps.library import EvaluationWork, TrainingRun, unique
from alewm.sweeps.sweep import select_configuration
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Theme
from alewm.training.config import RunConfig
from alewm_lab.experiments.experiment import (
    Contest,
    Experiment,
    ExperimentFigure,
    Groups,
    Outcome,
    Recipe,
    Results,
    RunsWithSettings,
    rows_of,
    success_cells,
    success_columns,
)
from alewm_lab.experiments.request import TASK_TITLES, Request
from alewm_lab.presentation import Curve, Point, success_curves


def _selected_models(request: Request) -> tuple[dict[str, Runs], Runs]:
    """ALeWM of width 192 as the paper selected it: runs over seeds by task, and all of them."""
    (width,) = request.widths(192)
    groups = request.alewm_by_task(TASK_TITLES, width)
    return groups, tuple(chain.from_iterable(groups.values()))


def _curve(
    results: Results, task: str, fixed: Mapping[int, RunsWithSettings], own: RunsWithSettings, fixed_label: str
) -> Curve:
    """A task's success at fixed capacities, and where it is planned with the capacity that its model chooses."""
    points = tuple(Point.of(k, results.over_seeds(*at), results.interval(*at)) for k, at in fixed.items())
    capacity = results.over_seeds(*own, "mean_capacity")
    star = Point.at(capacity, results.over_seeds(*own), results.interval(*own))
    return Curve(TASK_TITLES[task], points, star, fixed_label)


def build_prefix_sweep(request: Request) -> Experiment:
    """The selected models of one width, evaluated with the selector and at every capacity."""
    groups, runs = _selected_models(request)
    ks = runs[0].config.model.capacities
    modal = request.scale.evaluation()
    fixed = {k: request.scale.evaluation(capacity=str(k)) for k in ks}

    def outcome(results: Results) -> Outcome:
        rows: list[Row] = []
        curves = []
        for task, group in groups.items():
            imposed = {k: (group, settings) for k, settings in fixed.items()}
            own = results.success_cell(group, modal), results.capacity_cell(group, modal)
            rows.append([TASK_TITLES[task], *success_cells(list(imposed.values()), results), *own])
            curves.append(_curve(results, task, imposed, (group, modal), "fixed prefix"))
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


def _planned_with(
    request: Request,
    name: str,
    text: str,
    head: str,
    compared: Mapping[str, EvaluationSettings],
    *,
    shows_capacity: bool,
) -> Experiment:
    """The selected models of one width, planned with each of the `compared` settings, a row each below `head`."""
    groups, runs = _selected_models(request)

    def outcome(results: Results) -> Outcome:
        columns: dict[str, list[Cell]] = {}
        for task, group in groups.items():
            success, capacity = success_columns(task, [(group, each) for each in compared.values()], results).items()
            columns |= [success, capacity] if shows_capacity else [success]
        rows = rows_of(list(compared), columns)
        return Outcome((Table.of(name, request.caption(text), [head, *columns], rows),))

    works = [EvaluationWork(run, settings) for run in runs for settings in compared.values()]
    return Experiment(name, request, runs, outcome, tuple(works))


def build_goal_cost(request: Request) -> Experiment:
    """The selected models of one width, planned twice."""
    text = "Test success (mean ± SEM over seeds) of ALeWM, the goal compared on the whole latent or on the prefix."
    costs = {
        "full latent (d_max)": request.scale.evaluation(goal_cost="full"),
        "active prefix (K)": request.scale.evaluation(),
    }
    return _planned_with(request, "goal-cost", text, "goal cost over", costs, shows_capacity=False)


GOAL_COST = Recipe("goal-cost", "success with the active-prefix and with the full-width goal cost", build_goal_cost)


def build_selection_rules(request: Request) -> Experiment:
    """The selected models of one width, planned under every rule."""
    evaluation = request.scale.evaluation
    rules = {
        "modal, once (the paper's)": evaluation(),
        "modal, at every plan": evaluation(capacity="modal-every-plan"),
        "sampled from q": evaluation(capacity="sample"),
        "lowest predicted cost, on the prefix": evaluation(capacity="best-of"),
        "lowest predicted cost, on the whole latent": evaluation(capacity="best-of", goal_cost="full"),
    }
    text = (
        "Test success and planning capacity (mean ± SEM over seeds) of ALeWM under several rules for the capacity. "
        "Where it is chosen at every plan, E[K] is that of an episode's last plan. Predicted costs of different "
        "prefixes compare different coordinates unless the whole latent is compared; planning with all capacities "
        "costs as many searches."
    )
    return _planned_with(request, "selection-rules", text, "rule", rules, shows_capacity=True)


SELECTION_RULES = Recipe(
    "selection-rules", "modal, sampled, best predicted cost, chosen anew at every plan", build_selection_rules
)


REGULARIZERS = ("SIGReg", "MixSIGReg")


def build_sigreg_ablation(request: Request) -> Experiment:
    """Candidates of both regularizers, selection on validation pairs, then the test pairs once per selected one."""
    (width,) = request.widths(192)
    tasks = request.tasks("push-t", "cube")
    # The paper names MixSIGReg's hyperparameters, but not SIGReg's: its weight is always searched.
    searched = (WEIGHT, MULTIPLIER, DEGREE) if request.searches else (WEIGHT,)
    configurations = {}
    for task in tasks:
        for name, make, fields in (
            ("SIGReg", request.alewm_sigreg, searched),
            ("MixSIGReg", request.alewm, searched if request.searches else ()),
        ):
            changes = request.variations(*fields)
            configurations[task, name] = [request.over_seeds(make, task, width, changes=each) for each in changes]
    test = request.scale.evaluation()

    def outcome(results: Results, chosen: Groups) -> Outcome:
        return _sigreg_outcome(request, tasks, chosen, results)

    contest = Contest(request, configurations)
    return contest.experiment("sigreg-ablation", outcome, lambda run: [EvaluationWork(run, test)])


def _sigreg_outcome(request: Request, tasks: Sequence[str], chosen: Groups, results: Results) -> Outcome:
    test = request.scale.evaluation()
    columns: dict[str, list[Cell]] = {}
    for task in tasks:
        columns |= success_columns(task, [(chosen[task, name], test) for name in REGULARIZERS], results)
    for task in tasks:
        configs = [chosen[task, name][0].config for name in REGULARIZERS]
        columns[f"{TASK_TITLES[task]} λ, s_q, α"] = [Cell(_hyperparameters(config)) for config in configs]
    text = "Test success and mean planning capacity (± SEM over seeds) of ALeWM with either regularizer."
    how = (
        "The configuration of each was selected on validation pairs from the paper's grids."
        if request.searches
        else "MixSIGReg has the paper's selected configuration; SIGReg's weight was selected on validation pairs."
    )
    table = Table.of(
        "sigreg-ablation", request.caption(f"{text} {how}"), ["regularizer", *columns], rows_of(REGULARIZERS, columns)
    )
    spreads = {
        (task, name, key): results.over_seeds(chosen[task, name], test, key)
        for task in tasks
        for name in REGULARIZERS
        for key in ("success_rate", "mean_capacity")
    }
    every = [run for runs in chosen.values() for run in runs]
    drawing = ExperimentFigure(
        "sigreg-ablation", request.caption(text), _bars(tasks, spreads), results.commands(every, test)
    )
    return Outcome((table,), (drawing,))


def _hyperparameters(config: RunConfig) -> str:
    settings = config.objective.regularizer_weight, config.training.optim.selector_multiplier
    return ", ".join(f"{value:g}" for value in (*settings, config.model.prior_degree))


def _bars(tasks: Sequence[str], spreads: dict[tuple[str, str, str], Spread]) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(5.6, 2.7), layout="constrained")
        panels = figure.subplots(1, 2)
        shown = (("success_rate", 100.0, "test success (%)"), ("mean_capacity", 1.0, "mean planning capacity"))
        for axes, (key, scale, label) in zip(panels, shown, strict=True):
            for index, name in enumerate(REGULARIZERS):
                found = [spreads[task, name, key] for task in tasks]
                places = [position + 0.38 * (index - 0.5) for position in range(len(tasks))]
                heights, errors = [scale * s.mean for s in found], [scale * (s.sem or 0.0) for s in found]
                axes.bar(places, heights, 0.34, yerr=errors, color=theme.color(index), label=name, ecolor=theme.muted)
            axes.set_xticks(range(len(tasks)), [TASK_TITLES[task] for task in tasks])
            axes.set_ylabel(label)
            axes.grid(axis="x", visible=False)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
        return figure

    return draw


SIGREG_ABLATION = Recipe(
    "sigreg-ablation",
    "ALeWM with SIGReg on masked latents against MixSIGReg",
    build_sigreg_ablation,
    compares_configurations=True,
)


def build_nested_dropout(request: Request) -> Experiment:
    """At every capacity its own best configuration, chosen on validation pairs; ALeWM as the paper selected it."""
    (width,) = request.widths(192)
    tasks = request.tasks("push-t", "cube")
    changes = request.variations(*((WEIGHT, DEGREE) if request.searches else (WEIGHT,)))
    configurations = {
        task: [request.over_seeds(request.nested_dropout, task, width, changes=each) for each in changes]
        for task in tasks
    }
    alewm = request.alewm_by_task(tasks, width)
    ks = alewm[tasks[0]][0].config.model.capacities
    validation = {k: request.scale.evaluation("validation", capacity=str(k)) for k in ks}
    test = {k: request.scale.evaluation(capacity=str(k)) for k in ks}
    modal = request.scale.evaluation()
    nested = unique([run for group in configurations.values() for runs in group for run in runs])
    to_validate = [EvaluationWork(run, settings) for run in nested for settings in validation.values()]

    def chosen(results: Results, task: str, k: int) -> tuple[TrainingRun, ...]:
        return select_configuration(configurations[task], results.library, validation[k])

    def to_test(results: Results) -> list[EvaluationWork]:
        works = [EvaluationWork(run, test[k]) for task in tasks for k in ks for run in chosen(results, task, k)]
        return works + [EvaluationWork(run, modal) for runs in alewm.values() for run in runs]

    def outcome(results: Results) -> Outcome:
        rows: list[Row] = []
        curves = []
        commands: dict[str, None] = {}
        for task in tasks:
            best = {k: (chosen(results, task, k), test[k]) for k in ks}
            cells = [results.success_cell(*each) for each in best.values()]
            own = results.success_cell(alewm[task], modal)
            rows.append([TASK_TITLES[task], *cells, own, results.capacity_cell(alewm[task], modal)])
            configs = [runs[0].config for runs, _ in best.values()]
            settings = [f"{c.objective.regularizer_weight:g}, {c.model.prior_degree:g}" for c in configs]
            rows.append(["  its λ, α", *settings, "", ""])
            curves.append(_curve(results, task, best, (alewm[task], modal), "Nested Dropout"))
            commands |= dict.fromkeys(command for cell in (*cells, own) for command in cell.commands)
        head = ["task", *(f"k = {k}" for k in ks), "ALeWM", "ALeWM's E[K]"]
        text = (
            "Test success (%, mean ± SEM over seeds) of models trained with capacities from the fixed prior, at every "
            "capacity with the configuration that is best there on validation pairs, and of ALeWM."
        )
        table = Table.of("nested-dropout", request.caption(text), head, rows)
        drawing = ExperimentFigure("nested-dropout", request.caption(text), success_curves(curves), tuple(commands))
        return Outcome((table,), (drawing,))

    runs = unique([*nested, *(run for runs in alewm.values() for run in runs)])
    num_tests = len(tasks) * len(request.seeds) * (len(ks) + 1)
    return Experiment("nested-dropout", request, runs, outcome, tuple(to_validate), to_test, num_tests)


NESTED_DROPOUT = Recipe(
    "nested-dropout",
    "training with capacities from a fixed prior, at every capacity, against ALeWM",
    build_nested_dropout,
    compares_configurations=True,
)
