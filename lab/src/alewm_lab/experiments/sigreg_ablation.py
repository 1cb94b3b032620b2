"""ALeWM with SIGReg on masked latents in place of MixSIGReg, the best configuration of each."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from alewm.evaluation.statistics import Spread
from alewm.sweeps.choice import DEGREE, MULTIPLIER, TASK_TITLES, WEIGHT, Choice
from alewm.sweeps.results import Candidate, Drawing, Experiment, Outcome, Recipe, Results
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Theme
from alewm.training.config import RunConfig
from alewm_lab.experiments.contest import Contest, Groups, success_columns

REGULARIZERS = ("SIGReg", "MixSIGReg")


def build(choice: Choice) -> Experiment:
    """Candidates of both regularizers, selection on validation pairs, then the test pairs once per selected one."""
    (width,) = choice.widths(192)
    tasks = choice.tasks("push-t", "cube")
    # The paper names MixSIGReg's hyperparameters, but not SIGReg's: its weight is always searched.
    searched = (WEIGHT, MULTIPLIER, DEGREE) if choice.searches else (WEIGHT,)
    candidates = {}
    for task in tasks:
        for name, make, fields in (
            ("SIGReg", choice.alewm_sigreg, searched),
            ("MixSIGReg", choice.alewm, searched if choice.searches else ()),
        ):
            changes = choice.variations(*fields)
            runs = [choice.over_seeds(make, task, width, changes=each) for each in changes]
            candidates[task, name] = [Candidate(each) for each in runs]
    contest = Contest(choice, candidates)

    def outcome(results: Results) -> Outcome:
        return _outcome(choice, tasks, contest.chosen(results), results)

    return Experiment("sigreg-ablation", choice, contest.runs, contest.stages(), outcome)


def _outcome(choice: Choice, tasks: Sequence[str], chosen: Groups, results: Results) -> Outcome:
    test = choice.scale.evaluation()
    columns = success_columns(choice, tasks, REGULARIZERS, chosen, results)
    for task in tasks:
        configs = [chosen[task, name][0].config for name in REGULARIZERS]
        columns[f"{TASK_TITLES[task]} λ, s_q, α"] = [Cell(_hyperparameters(config)) for config in configs]
    rows: list[Row] = [[name, *(column[i] for column in columns.values())] for i, name in enumerate(REGULARIZERS)]
    text = "Test success and mean planning capacity (± SEM over seeds) of ALeWM with either regularizer."
    how = (
        "The configuration of each was selected on validation pairs from the paper's grids."
        if choice.searches
        else "MixSIGReg has the paper's selected configuration; SIGReg's weight was selected on validation pairs."
    )
    table = Table.of("sigreg-ablation", choice.caption(f"{text} {how}"), ["regularizer", *columns], rows)
    spreads = {
        (task, name, key): results.over_seeds(chosen[task, name], test, key)
        for task in tasks
        for name in REGULARIZERS
        for key in ("success_rate", "mean_capacity")
    }
    every = [run for runs in chosen.values() for run in runs]
    drawing = Drawing("sigreg-ablation", choice.caption(text), _bars(tasks, spreads), results.commands(every, test))
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


RECIPE = Recipe(
    "sigreg-ablation",
    "ALeWM with SIGReg on masked latents against MixSIGReg",
    build,
    compares_configurations=True,
)
