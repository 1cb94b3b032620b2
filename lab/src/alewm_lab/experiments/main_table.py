"""The main table: LeWM at full width, LeWM at its best width, ALeWM; three backbones, four tasks."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from matplotlib.figure import Figure

from alewm.evaluation.settings import EvaluationSettings
from alewm.sweeps.grid import DEGREE, GRIDS, MULTIPLIER, WEIGHT, Runs
from alewm.sweeps.library import EvaluationWork, unique
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
from alewm_lab.presentation import panel_grid

METHODS = ("LeWM (best d)", "LeWM (d = d_max)", "ALeWM")
MARKERS = dict(zip(METHODS, "so*", strict=True))
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
    standings = {
        key: {method: _standing(results, block[method], test) for method in METHODS} for key, block in blocks.items()
    }
    overview = ExperimentFigure("overview", caption, _overview(standings), results.commands(runs, test))
    return Outcome(tables, (overview,), findings=_findings(list(standings.values())))


class Standing(NamedTuple):
    """Of one method: planning capacity and success in percent, with their standard errors over seeds."""

    capacity: float
    success: float
    capacity_sem: float
    success_sem: float


def _standing(results: Results, runs: Runs, test: EvaluationSettings) -> Standing:
    capacity, success = results.over_seeds(runs, test, "mean_capacity"), results.over_seeds(runs, test)
    return Standing(capacity.mean, 100 * success.mean, capacity.sem or 0.0, 100 * (success.sem or 0.0))


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
        rows.append([TASK_TITLES[task], *results.floors(run, test), str(results.evaluation(run, test)["episodes"])])
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


def _findings(compared: Sequence[Mapping[str, Standing]]) -> tuple[str, ...]:
    """The text's ranges, computed."""
    ours, findings = METHODS[-1], []
    for rival in METHODS[:-1]:
        gains = [each[ours].success - each[rival].success for each in compared]
        changes = [100 * (each[ours].capacity / each[rival].capacity - 1) for each in compared]
        findings.append(
            f"Against {rival}: success {min(gains):+.2f} to {max(gains):+.2f} percentage points, planning capacity "
            f"{min(changes):+.0f} to {max(changes):+.0f} %; ALeWM has the higher mean success in "
            f"{sum(gain > 0 for gain in gains)} of {len(compared)} comparisons and the smaller capacity in "
            f"{sum(change < 0 for change in changes)}."
        )
    return tuple(findings)


def _overview(standings: Mapping[tuple[int, str], Mapping[str, Standing]]) -> Draw:
    widths, tasks = (list(dict.fromkeys(parts)) for parts in zip(*standings, strict=True))

    def draw(theme: Theme) -> Figure:
        figure, panels = panel_grid(len(widths), panel=(3.1, 3.3), margin=(0.9, 0.0), sharey=True)
        for axes, width in zip(panels, widths, strict=True):
            axes.set(title=f"{BACKBONES[width]}, d_max = {width}", xlabel="mean planning capacity")
            axes.set_xscale("log", base=2)
            for (own_width, task), found in standings.items():
                if own_width != width:
                    continue
                color = theme.color(tasks.index(task))
                for method, marker in MARKERS.items():
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
        for method, marker in MARKERS.items():
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
