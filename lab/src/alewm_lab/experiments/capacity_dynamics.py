"""How q moves while training: figures of mean q, how far it went from the prior, and when prediction came."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil
from statistics import fmean

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from alewm.capacity.support import polynomial_prior
from alewm.errors import InputError
from alewm.evaluation.settings import EvaluationSettings
from alewm.evaluation.statistics import Spread, total_variation
from alewm.sweeps.grid import DEGREE
from alewm.sweeps.library import EvaluationWork, TrainingRun
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Series, Theme, thinned
from alewm.training.presets import MIXED, MIXED_SELECTED, SEEDS
from alewm_lab.experiments.experiment import Experiment, ExperimentFigure, Outcome, Recipe, Results
from alewm_lab.experiments.request import TASK_TITLES, Request
from alewm_lab.presentation import NONE, panel_grid

PATH_HEAD = ("q farthest from π₀", "at update", "q from π₀ at the end", "prediction halved at update")
"""Above what `path_cells` gives."""

PATH_LEGEND = (
    "the largest total variation between mean q and the prior π₀, the update at which q was that far, and how far it "
    "ended; and the first update after the highest prediction loss at which that is at most half as high, – if it "
    "never is (losses are means since the last logged update; updates are those of each seed)"
)
"""What they mean."""

Dynamics = Mapping[int, Series]
"""Steps and mean q of each capacity; at the first step it is the prior."""


def starting_at(prior: Sequence[float], logged: Mapping[int, Series]) -> Dynamics:
    """What was `logged` of each capacity, in their order, with the prior before it."""
    return {
        k: ([0.0, *steps], [first, *values]) for first, (k, (steps, values)) in zip(prior, logged.items(), strict=True)
    }


def distance_from_prior(dynamics: Dynamics) -> Series:
    """Steps, and at each the total variation between mean q and the prior."""
    steps = next(iter(dynamics.values()))[0]
    q = torch.tensor([values for _, values in dynamics.values()], dtype=torch.float64).T
    return steps, total_variation(q, q[0]).tolist()


def farthest(series: Series) -> tuple[float, float]:
    """The first step at which the values are largest, and that value."""
    steps, values = series
    top = values.index(max(values))
    return steps[top], values[top]


def halved_at(series: Series) -> float | None:
    """The first step from that of the highest value on at which it is at most half as high; None if it never is.

    What is low before does not count: a latent that has collapsed is predicted well.
    """
    steps, values = series
    top = values.index(max(values))
    low = (step for step, value in zip(steps[top:], values[top:], strict=True) if value <= values[top] / 2)
    return next(low, None)


def path_cells(dynamics: Sequence[Dynamics], losses: Sequence[Series]) -> list[str]:
    """Texts below `PATH_HEAD` of the seeds of one configuration; it has no `dynamics` where q does not move."""
    cells = [NONE] * 3
    if dynamics:
        ways = [distance_from_prior(each) for each in dynamics]
        far = [farthest(way) for way in ways]
        cells = [
            Spread.of([distance for _, distance in far]).shown(),
            ", ".join(f"{step:.0f}" for step, _ in far),
            Spread.of([distances[-1] for _, distances in ways]).shown(),
        ]
    halved = [halved_at(series) for series in losses]
    return [*cells, ", ".join(NONE if step is None else f"{step:.0f}" for step in halved)]


def build_capacity_dynamics(request: Request) -> Experiment:
    """One model per task and seed; nothing is evaluated, since training itself records q."""
    (width,) = request.widths(192)
    runs = tuple(chain.from_iterable(request.alewm_by_task(TASK_TITLES, width).values()))

    def outcome(results: Results) -> Outcome:
        dynamics = [(f"{TASK_TITLES[run.task]}, seed {run.seed}", q_over_training([run], results)) for run in runs]
        rows: list[Row] = []
        for run, (title, found) in zip(runs, dynamics, strict=True):
            commands = results.training_commands([run])
            for name, index in (("prior", 0), ("at the end", -1)):
                probabilities = [values[index] for _, values in found.values()]
                top = max(probabilities)
                rows.append([title, name, *(Cell(f"{p:.3f}", p == top, commands) for p in probabilities)])
        head = ["task and seed", "when", *(f"k = {k}" for k in runs[0].config.model.capacities)]
        text = (
            "Mean probability of each capacity before the first update, where q is the prior, and in the last batches."
        )
        table = Table.of("capacity-dynamics", request.caption(text), head, rows)
        caption = request.caption(
            "Mean probability of each capacity over training, averaged over the batches between two logged steps; at "
            "step 0 it is the prior."
        )
        figure = ExperimentFigure(
            "capacity-dynamics", caption, draw_dynamics(dynamics), results.training_commands(runs)
        )
        return Outcome((table,), (figure,))

    return Experiment("capacity-dynamics", request, runs, outcome)


def q_over_training(runs: Sequence[TrainingRun], results: Results, data_set: str = "") -> Dynamics:
    """Mean q of each capacity over `runs`, at step 0, where it equals the prior, and at every logged step.

    Of runs that learned from several data sets, q on the one called `data_set`.
    """
    model, prefix = runs[0].config.model, f"q/{data_set}/" if data_set else "q/"
    prior = polynomial_prior(len(model.support), model.prior_degree).tolist()
    logs = [results.metrics(run, "train") for run in runs]
    steps = [float(entry["step"]) for entry in logs[0]]
    means = {
        k: [fmean(float(entry[f"{prefix}{k}"]) for entry in at) for at in zip(*logs, strict=True)]
        for k in model.capacities
    }
    return starting_at(prior, {k: (steps, values) for k, values in means.items()})


def draw_dynamics(dynamics: Sequence[tuple[str, Dynamics]]) -> Draw:
    """A panel of each, with its title; all have one vertical range."""
    top = max(value for _, curves in dynamics for _, values in curves.values() for value in values)

    def draw(theme: Theme) -> Figure:
        figure, panels = panel_grid(len(dynamics), 4, panel=(2.9, 2.5), margin=(0.8, 0.0), sharey=True)
        for axes, (title, curves) in zip(panels, dynamics, strict=True):
            for color, (k, (steps, values)) in zip(theme.shades(len(curves)), curves.items(), strict=True):
                axes.plot(steps, values, color=color, linewidth=1.2, label=f"k = {k}")
            axes.set(title=title, xlabel="update steps", ylim=(0, 1.05 * top))
        panels[0].set_ylabel("mean q(k)")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
        return figure

    return draw


CAPACITY_DYNAMICS = Recipe(
    "capacity-dynamics", "mean q per capacity over training", build_capacity_dynamics, seeds=SEEDS[:1]
)


STAND_INS = ("two-room", "two-room")
"""What the smoke scale learns from: Reacher is drawn at some ten frames per second, and would take minutes."""

PUBLISHED = {"reacher": ("85.17 ± 0.73", "63.95 ± 0.05"), "two-room": ("36.17 ± 1.01", "21.33 ± 5.33")}
"""The paper's test success in percent and mean planning capacity, mean ± SEM over three seeds."""

LEAST_TOP = 0.4
"""Where the paper's figure ends, which leaves out the first steps of the largest capacity."""

MOST_POINTS = 100
"""Points of a curve, few enough for a dashed one to look dashed."""


def build_mixed(request: Request) -> Experiment:
    """One run per seed, evaluated on the test pairs of both data sets."""
    request.refuse_tiny("mixed is one model on Reacher and Two-Room")
    if not request.is_smoke and request.tasks(*MIXED) != MIXED:
        raise InputError("mixed is one model on reacher and two-room together; --only cannot leave one out.")
    (width,) = request.widths(192)
    task = "+".join(STAND_INS if request.is_smoke else MIXED)
    changes = {"task": task, DEGREE: float(MIXED_SELECTED.prior_degree)}
    runs = request.over_seeds(request.alewm, task, width, changes=changes)
    tests = {name: replace(request.scale.evaluation(), data_set=name) for name in runs[0].data_sets}
    works = [EvaluationWork(run, test, request.scale.num_animations) for run in runs for test in tests.values()]

    def outcome(results: Results) -> Outcome:
        dynamics = {name: q_over_training(runs, results, name) for name in tests}
        text = (
            f"Mean probability of each capacity over training on each data set of a joint model, averaged over "
            f"{len(runs)} seeds and over at least the batches between two logged steps; at step 0 it is the prior. The "
            f"vertical range leaves out what is higher in the first tenth of training."
        )
        commands = results.training_commands(runs)
        drawing = ExperimentFigure("mixed", request.caption(text), _panels(dynamics), commands)
        tables = (_success_table(request, runs, tests, results), _q_table(request, dynamics, commands))
        return Outcome(tables, (drawing,))

    return Experiment("mixed", request, runs, outcome, tuple(works))


def _success_table(
    request: Request, runs: Sequence[TrainingRun], tests: Mapping[str, EvaluationSettings], results: Results
) -> Table:
    rows: list[Row] = []
    for name, test in tests.items():
        published = (NONE, NONE) if request.is_smoke else PUBLISHED[name]
        ours = results.success_cell(runs, test), results.capacity_cell(runs, test)
        rows.append([_title(name), *ours, *published, *results.floors(runs[0], test)])
    head = ["data set", "SR (%)", "E[K]", "paper SR (%)", "paper E[K]", "random (%)", "nothing (%)", "presolved (%)"]
    text = (
        "Test success rate (SR) and mean planning capacity E[K] of one model on the pairs of each data set it learned "
        "from (mean ± SEM over seeds), beside the paper's, and what random actions, no actions and the start give."
    )
    return Table.of("mixed-success", request.caption(text), head, rows)


def _q_table(request: Request, dynamics: Mapping[str, Dynamics], commands: tuple[str, ...]) -> Table:
    rows: list[Row] = []
    ends = {
        "prior": (next(iter(dynamics.values())), 0),
        **{_title(name): (each, -1) for name, each in dynamics.items()},
    }
    for title, (curves, index) in ends.items():
        probabilities = [values[index] for _, values in curves.values()]
        rows.append([title, *(Cell(f"{p:.3f}", p == max(probabilities), commands) for p in probabilities)])
    head = ["data set", *(f"k = {k}" for k in next(iter(dynamics.values())))]
    text = "Mean probability of each capacity on each data set in the last batches, averaged over seeds."
    return Table.of("mixed-capacities", request.caption(text), head, rows)


def _panels(dynamics: Mapping[str, Dynamics]) -> Draw:
    """A panel per capacity, a line per data set."""
    capacities = list(next(iter(dynamics.values())))
    late = [
        value
        for curves in dynamics.values()
        for steps, values in curves.values()
        for step, value in zip(steps, values, strict=True)
        if step >= 0.1 * steps[-1]
    ]
    top = max(LEAST_TOP, ceil(10 * max(late)) / 10)

    def draw(theme: Theme) -> Figure:
        columns = 4 if len(capacities) > 6 else 3
        figure, panels = panel_grid(len(capacities), columns, panel=(2.1, 1.8), margin=(0.6, 0.6), sharey=True)
        for axes, k in zip(panels, capacities, strict=True):
            for number, (name, curves) in enumerate(dynamics.items()):
                style = "-" if number == 0 else "--"
                axes.plot(*_drawn(curves[k]), style, color=theme.color(number), linewidth=1.4, label=_title(name))
            axes.set(title=f"k = {k}", ylim=(0, top))
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        figure.supxlabel("update steps", fontsize="medium")
        figure.supylabel("mean q(k)", fontsize="medium")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(dynamics))
        return figure

    return draw


def _drawn(series: Series) -> Series:
    """Fewer points, but the first one, the prior, as it is."""
    steps, values = series
    later_steps, later_values = thinned((steps[1:], values[1:]), MOST_POINTS)
    return [steps[0], *later_steps], [values[0], *later_values]


def _title(data_set: str) -> str:
    return TASK_TITLES.get(data_set, "Two-Room (2)")


TWO_DATA_SETS = Recipe("mixed", "one model on Reacher and Two-Room: q, success and capacity on each", build_mixed)
