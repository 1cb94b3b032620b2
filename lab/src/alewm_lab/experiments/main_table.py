"""The main table: LeWM at full width, LeWM at its best width, ALeWM; three backbones, four tasks."""

from collections.abc import Mapping, Sequence
from itertools import product

from matplotlib.figure import Figure

from alewm.evaluation.settings import EvaluationSettings
from alewm.sweeps.grid import DEGREE, GRIDS, MULTIPLIER, WEIGHT, Runs
from alewm.sweeps.library import EvaluationWork, TrainingRun, unique
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Theme
from alewm.training.presets import LEWM_WEIGHT
from alewm_lab.experiments.experiment import (
    Contest,
    Experiment,
    ExperimentFigure,
    Outcome,
    Recipe,
    Results,
    rows_of,
    success_columns,
)
from alewm_lab.experiments.request import TASK_TITLES, Request

METHODS = ("LeWM (best d)", "LeWM (d = d_max)", "ALeWM")
BACKBONES = {32: "tiny", 96: "ViT-Tiny", 192: "ViT-Tiny", 384: "ViT-Small"}


Block = Mapping[str, Runs]
"""The chosen runs of each method, for one width and task."""

Blocks = Mapping[tuple[int, str], Block]
"""By width and task."""


def contest_of(request: Request, widths: Sequence[int], tasks: Sequence[str]) -> Contest[tuple[int, str, str]]:
    """LeWM at every width of the grid, and ALeWM as the paper selected it; with a search, at every grid point."""
    weights = GRIDS[WEIGHT] if request.searches else (LEWM_WEIGHT,)
    changes = request.variations(WEIGHT, MULTIPLIER, DEGREE) if request.searches else [{}]
    configurations = {}
    for width, task in product(widths, tasks):
        lewm = [
            request.over_seeds(request.lewm, task, width, latent_dim, weight=weight)
            for latent_dim, weight in product(request.widths_of_lewm(width), weights)
        ]
        full = [runs for runs in lewm if runs[0].config.model.latent_dim == width]
        alewm = [request.over_seeds(request.alewm, task, width, changes=each) for each in changes]
        for method, group in zip(METHODS, (lewm, full, alewm), strict=True):
            configurations[width, task, method] = group
    return Contest(request, configurations)


def blocks_of(chosen: Mapping[tuple[int, str, str], Runs]) -> dict[tuple[int, str], dict[str, Runs]]:
    """What was chosen, by width and task."""
    blocks: dict[tuple[int, str], dict[str, Runs]] = {}
    for (width, task, method), runs in chosen.items():
        blocks.setdefault((width, task), {})[method] = runs
    return blocks


def build(request: Request) -> Experiment:
    """All configurations; selection on validation pairs; then the test pairs, once per selected configuration."""
    contest = contest_of(request, request.widths(96, 192, 384), request.tasks(*TASK_TITLES))
    test = request.scale.evaluation()

    def outcome(results: Results, chosen: Mapping[tuple[int, str, str], Runs]) -> Outcome:
        return _outcome(request, blocks_of(chosen), results, test)

    return contest.experiment(
        "main-table", outcome, lambda run: [EvaluationWork(run, test, num_animations=request.scale.num_animations)]
    )


def _outcome(request: Request, blocks: Blocks, results: Results, test: EvaluationSettings) -> Outcome:
    tables = (
        _success_table(request, blocks, results, test),
        _floors_table(request, blocks, results, test),
        _hyperparameters_table(request, blocks),
        _counts_table(request, blocks, results, test),
    )
    caption = request.caption(
        "Test success against mean planning capacity. Arrows lead from LeWM at full width to ALeWM; squares are LeWM "
        "at its best width. Bars are SEM over seeds."
    )
    runs = unique([run for block in blocks.values() for rows in block.values() for run in rows])
    overview = ExperimentFigure("overview", caption, _overview(blocks, results, test), results.commands(runs, test))
    return Outcome(tables, (overview,), findings=_findings(blocks, results, test))


def _point(results: Results, runs: Sequence[TrainingRun], test: EvaluationSettings) -> tuple[float, float]:
    return results.over_seeds(runs, test, "mean_capacity").mean, 100 * results.over_seeds(runs, test).mean


def _title(width: int) -> str:
    return f"{BACKBONES[width]} ({width})"


def _success_table(request: Request, blocks: Blocks, results: Results, test: EvaluationSettings) -> Table:
    tasks = list(dict.fromkeys(task for _, task in blocks))
    rows: list[Row] = []
    columns: dict[str, list[Cell]] = {}
    for width in dict.fromkeys(width for width, _ in blocks):
        for task in tasks:
            columns |= success_columns(task, [(blocks[width, task][m], test) for m in METHODS], results)
        methods = [method.replace("d_max", str(width)) for method in METHODS]
        rows += [[_title(width), *row] for row in rows_of(methods, columns)]
    head = ["backbone (d_max)", "method", *columns]
    text = "Test success rate (SR, mean ± SEM over seeds) and mean planning capacity E[K] over episodes, then seeds."
    return Table.of("success", request.caption(text), head, rows)


def _floors_table(request: Request, blocks: Blocks, results: Results, test: EvaluationSettings) -> Table:
    """What chance gives on the same pairs, which no model changes."""
    rows: list[Row] = []
    first: dict[str, Block] = {}
    for (_, task), block in blocks.items():
        first.setdefault(task, block)
    for task, block in first.items():
        run = block["ALeWM"][0]
        found = results.evaluation(run, test)
        keys = ("random_success_rate", "zero_success_rate", "presolved_share")
        rows.append([TASK_TITLES[task], *(f"{100 * found[key]:.1f}" for key in keys), str(found["episodes"])])
    head = ["task", "uniform random (%)", "doing nothing (%)", "solved at the start (%)", "pairs"]
    return Table.of("floors", request.caption("Success without a model on the same test pairs."), head, rows)


def _hyperparameters_table(request: Request, blocks: Blocks) -> Table:
    rows: list[Row] = []
    for (width, task), block in blocks.items():
        alewm, lewm = block["ALeWM"][0].config, block["LeWM (best d)"][0].config
        rows.append(
            [
                str(width),
                TASK_TITLES[task],
                f"{alewm.objective.regularizer_weight:g}",
                f"{alewm.training.optim.selector_multiplier:g}",
                f"{alewm.model.prior_degree:g}",
                str(lewm.model.latent_dim),
                f"{lewm.objective.regularizer_weight:g}",
            ]
        )
    how = (
        "Selected on validation pairs from the paper's grids."
        if request.searches
        else ("ALeWM's are the rows the paper selected; LeWM's width is selected on validation pairs at λ = 0.09.")
    )
    head = ["d_max", "task", "ALeWM λ", "ALeWM s_q", "ALeWM α", "LeWM best d", "LeWM λ"]
    return Table.of("hyperparameters", request.caption(f"Hyperparameters of the table of success. {how}"), head, rows)


def _counts_table(request: Request, blocks: Blocks, results: Results, test: EvaluationSettings) -> Table:
    rows: list[Row] = []
    for (width, task), block in blocks.items():
        for run in block["ALeWM"]:
            counts = results.evaluation(run, test)["capacity_counts"]
            text = ", ".join(f"{k}: {count}" for k, count in counts.items() if count)
            cell = Cell(text, commands=results.commands([run], test))
            rows.append([_title(width), TASK_TITLES[task], str(run.seed), cell])
    head = ["backbone (d_max)", "task", "seed", "planning capacity: episodes"]
    text = "How many test episodes ALeWM planned with each capacity; capacities never chosen are left out."
    return Table.of("capacity-counts", request.caption(text), head, rows)


def _findings(blocks: Blocks, results: Results, test: EvaluationSettings) -> tuple[str, ...]:
    """The text's ranges, computed."""
    points = [{m: _point(results, rows, test) for m, rows in block.items()} for block in blocks.values()]
    total, ours = len(points), METHODS[-1]
    findings = []
    for rival in METHODS[:-1]:
        gains = [p[ours][1] - p[rival][1] for p in points]
        changes = [100 * (p[ours][0] / p[rival][0] - 1) for p in points]
        findings.append(
            f"Against {rival}: success {min(gains):+.2f} to {max(gains):+.2f} percentage points, planning capacity "
            f"{min(changes):+.0f} to {max(changes):+.0f} %; ALeWM has the higher mean success in "
            f"{sum(gain > 0 for gain in gains)} of {total} comparisons and the smaller capacity in "
            f"{sum(change < 0 for change in changes)}."
        )
    return tuple(findings)


def _overview(blocks: Blocks, results: Results, test: EvaluationSettings) -> Draw:
    widths = list(dict.fromkeys(width for width, _ in blocks))
    tasks = list(dict.fromkeys(task for _, task in blocks))

    def spread(runs: Sequence[TrainingRun]) -> tuple[float, float, float, float]:
        k, rate = results.over_seeds(runs, test, "mean_capacity"), results.over_seeds(runs, test)
        return k.mean, 100 * rate.mean, k.sem or 0.0, 100 * (rate.sem or 0.0)

    points = {key: {method: spread(block[method]) for method in METHODS} for key, block in blocks.items()}

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(3.1 * len(widths) + 0.9, 3.3), layout="constrained")
        panels = figure.subplots(1, len(widths), sharey=True, squeeze=False)[0]
        for axes, width in zip(panels, widths, strict=True):
            axes.set(title=f"{BACKBONES[width]}, d_max = {width}", xlabel="mean planning capacity")
            axes.set_xscale("log", base=2)
            for (own_width, task), found in points.items():
                if own_width != width:
                    continue
                color = theme.color(tasks.index(task))
                for method, marker in zip(METHODS, ("s", "o", "*"), strict=True):
                    k, rate, k_sem, rate_sem = found[method]
                    size, fill = (9, color) if marker == "*" else (5, "none")
                    axes.errorbar(k, rate, rate_sem, k_sem, fmt=marker, ms=size, mfc=fill, color=color, elinewidth=1)
                full, ours = found[METHODS[1]], found[METHODS[2]]
                arrow = {"arrowstyle": "->", "color": color, "shrinkA": 5, "shrinkB": 6, "alpha": 0.7}
                axes.annotate("", xy=ours[:2], xytext=full[:2], arrowprops=arrow)
            axes.xaxis.set_major_formatter("{x:g}")
        panels[0].set_ylabel("test success (%)")
        names = [TASK_TITLES[task] for task in tasks]
        for index, name in enumerate(names):
            panels[-1].plot([], [], color=theme.color(index), linewidth=4, label=name)
        for method, marker in zip(METHODS, ("s", "o", "*"), strict=True):
            fill = theme.muted if marker == "*" else "none"
            panels[-1].plot([], [], marker=marker, linestyle="none", color=theme.muted, mfc=fill, label=method)
        figure.legend(loc="outside right center")
        return figure

    return draw


RECIPE = Recipe(
    "main-table",
    "success and planning capacity of LeWM at full and best width and of ALeWM, all tasks and backbones",
    build,
    compares_configurations=True,
    chooses_lewm_width=True,
)
