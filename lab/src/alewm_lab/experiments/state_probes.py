"""How much of the true state each prefix holds: linear and network probes."""

from matplotlib.figure import Figure

from alewm.evaluation.probes import PROBES, measure
from alewm.evaluation.statistics import Spread
from alewm.sweeps.library import TrainingWork
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Theme
from alewm_lab.experiments.experiment import Experiment, ExperimentFigure, MeasurementWork, Outcome, Recipe, Results
from alewm_lab.experiments.panels import capacity_axis
from alewm_lab.experiments.request import TASK_TITLES, Request

Curves = dict[tuple[str, str, str], dict[int, Spread]]
"""R² by capacity, for each task, method and probe."""


def build(request: Request) -> Experiment:
    """ALeWM and LeWM of one width; probes fitted on training frames, scored on frames of test episodes."""
    (width,) = request.widths(192)
    groups = request.both_methods(TASK_TITLES, width)
    runs = tuple(run for group in groups.values() for run in group)
    ks = request.alewm(runs[0].task, width, request.seeds[0]).config.model.capacities
    options = (
        ("capacities", ks),
        ("num_train", 400 if request.is_smoke else 20_000),
        ("num_test", 100 if request.is_smoke else 5_000),
        ("num_steps", 20 if request.is_smoke else 3_000),
    )
    measured = {run: MeasurementWork(run, "probes", measure, options, request.command("probes")) for run in runs}

    def outcome(results: Results) -> Outcome:
        curves: Curves = {}
        rows: list[Row] = []
        for (task, method), group in groups.items():
            found = [results.measured(measured[run]) for run in group]
            commands = tuple(w.command(results.library) for run in group for w in (TrainingWork(run), measured[run]))
            for probe in PROBES:
                spread = {k: Spread.of([each[probe][str(k)]["mean"] for each in found]) for k in ks}
                curves[task, method, probe] = spread
                cells = [Cell(spread[k].shown(digits=3), commands=commands) for k in ks]
                rows.append([TASK_TITLES[task], method, probe, *cells])
        head = ["task", "model", "probe", *(f"k = {k}" for k in ks)]
        text = (
            "R² (mean over what one frame shows of the state, ± SEM over seeds) from the first k coordinates of "
            "the latent of one frame; probes are fitted per prefix on training frames and scored on frames of test "
            "episodes."
        )
        table = Table.of("probes", request.caption(text), head, rows)
        commands = tuple(TrainingWork(run).command(results.library) for run in runs)
        return Outcome((table,), (ExperimentFigure("probes", request.caption(text), _panels(curves), commands),))

    works = list(measured.values())
    return Experiment("probes", request, runs, outcome, tuple(works))


def _panels(curves: Curves) -> Draw:
    tasks = list(dict.fromkeys(task for task, _, _ in curves))

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(2.9 * len(tasks) + 0.6, 2.8), layout="constrained")
        panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
        for axes, task in zip(panels, tasks, strict=True):
            for (where, method, probe), spread in curves.items():
                if where != task:
                    continue
                color = theme.color(0 if method == "LeWM" else 1)
                style, ks = "-" if probe == "linear" else "--", list(spread)
                means, errors = [s.mean for s in spread.values()], [s.sem or 0.0 for s in spread.values()]
                axes.errorbar(
                    ks, means, errors, color=color, linestyle=style, marker="o", ms=3, label=f"{method}, {probe}"
                )
            capacity_axis(axes, ks)
            axes.set(title=TASK_TITLES[task], xlabel="prefix k")
        panels[0].set_ylabel("R² of the true state")
        panels[-1].legend(fontsize=7)
        return figure

    return draw


RECIPE = Recipe("probes", "linear and network recovery of the true state from each prefix", build)
