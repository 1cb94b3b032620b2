"""The main table: LeWM at full width, LeWM at its best width, ALeWM; three backbones, four tasks."""

from collections.abc import Sequence
from itertools import product

from matplotlib.figure import Figure

from alewm.evaluation.settings import EvaluationSettings
from alewm.sweeps.choice import TASK_TITLES, Choice
from alewm.sweeps.grid import Block, candidates_of
from alewm.sweeps.results import (
    Drawing,
    Experiment,
    Outcome,
    Recipe,
    Results,
    Stage,
    select,
    selecting,
    unique,
)
from alewm.sweeps.run import Run
from alewm.sweeps.work import Evaluation
from alewm.tables import Cell, Row, Table, mark_best
from alewm.theme import Draw, Theme

METHODS = ("LeWM (best d)", "LeWM (d = d_max)", "ALeWM")
BACKBONES = {32: "tiny", 96: "ViT-Tiny", 192: "ViT-Tiny", 384: "ViT-Small"}


class Selected:
    """The configurations of a block's three rows, chosen on validation pairs."""

    def __init__(self, block: Block, results: Results, validation: EvaluationSettings) -> None:
        self.block = block
        candidates = (block.lewm, block.full_width, block.alewm)
        self.runs = {m: select(c, results, validation).runs for m, c in zip(METHODS, candidates, strict=True)}


def build(choice: Choice) -> Experiment:
    """Runs of all candidates; selection on validation pairs; then the test pairs, once per selected configuration."""
    blocks = [
        candidates_of(choice, task, width)
        for width, task in product(choice.widths(96, 192, 384), choice.tasks(*TASK_TITLES))
    ]
    validation, test = choice.scale.evaluation("validation"), choice.scale.evaluation()

    def to_test(results: Results) -> list[Evaluation]:
        chosen = [Selected(block, results, validation) for block in blocks]
        runs = unique([run for each in chosen for rows in each.runs.values() for run in rows])
        return [Evaluation(run, test, num_animations=choice.scale.num_animations) for run in runs]

    def outcome(results: Results) -> Outcome:
        return _outcome(choice, [Selected(block, results, validation) for block in blocks], results, test)

    every = [run for block in blocks for candidate in (*block.lewm, *block.alewm) for run in candidate.runs]
    return Experiment(
        "main-table",
        choice,
        unique(every),
        (
            selecting(compared_runs(blocks), validation),
            Stage("planning to test pairs", to_test, len(METHODS) * len(blocks) * len(choice.seeds)),
        ),
        outcome,
    )


def compared_runs(blocks: Sequence[Block]) -> tuple[Run, ...]:
    """The runs among which validation decides; a lone candidate needs no validation."""
    groups = [group for block in blocks for group in (block.lewm, block.full_width, block.alewm) if len(group) > 1]
    return unique([run for group in groups for candidate in group for run in candidate.runs])


def _outcome(choice: Choice, selected: Sequence[Selected], results: Results, test: EvaluationSettings) -> Outcome:
    tables = (
        _success_table(choice, selected, results, test),
        _floors_table(choice, selected, results, test),
        _hyperparameters_table(choice, selected),
        _counts_table(choice, selected, results, test),
    )
    caption = choice.caption(
        "Test success against mean planning capacity. Arrows lead from LeWM at full width to ALeWM; squares are LeWM "
        "at its best width. Bars are SEM over seeds."
    )
    runs = unique([run for each in selected for rows in each.runs.values() for run in rows])
    overview = Drawing("overview", caption, _overview(selected, results, test), results.commands(runs, test))
    return Outcome(tables, (overview,), findings=_findings(selected, results, test))


def _point(results: Results, runs: Sequence[Run], test: EvaluationSettings) -> tuple[float, float]:
    return results.over_seeds(runs, test, "mean_capacity").mean, 100 * results.over_seeds(runs, test).mean


def _title(block: Block) -> str:
    return f"{BACKBONES[block.width]} ({block.width})"


def _success_table(choice: Choice, selected: Sequence[Selected], results: Results, test: EvaluationSettings) -> Table:
    tasks = list(dict.fromkeys(each.block.task for each in selected))
    head = ["backbone (d_max)", "method"]
    for task in tasks:
        head += [f"{TASK_TITLES[task]} SR (%)", f"{TASK_TITLES[task]} E[K]"]
    rows: list[Row] = []
    for width in dict.fromkeys(each.block.width for each in selected):
        columns = []
        for each in (each for each in selected if each.block.width == width):
            spreads = [results.over_seeds(each.runs[m], test).mean for m in METHODS]
            columns.append(mark_best([results.success_cell(each.runs[m], test) for m in METHODS], spreads))
            columns.append([results.capacity_cell(each.runs[m], test) for m in METHODS])
        for index, method in enumerate(METHODS):
            title = f"{BACKBONES[width]} ({width})"
            rows.append([title, method.replace("d_max", str(width)), *(column[index] for column in columns)])
    text = "Test success rate (SR, mean ± SEM over seeds) and mean planning capacity E[K] over episodes, then seeds."
    return Table.of("success", choice.caption(text), head, rows)


def _floors_table(choice: Choice, selected: Sequence[Selected], results: Results, test: EvaluationSettings) -> Table:
    """What chance gives on the same pairs, which no model changes."""
    rows: list[Row] = []
    for task in dict.fromkeys(each.block.task for each in selected):
        run = next(each for each in selected if each.block.task == task).runs["ALeWM"][0]
        found = results.evaluation(run, test)
        keys = ("random_success_rate", "zero_success_rate", "presolved_share")
        rows.append([TASK_TITLES[task], *(f"{100 * found[key]:.1f}" for key in keys), str(found["episodes"])])
    head = ["task", "uniform random (%)", "doing nothing (%)", "solved at the start (%)", "pairs"]
    return Table.of("floors", choice.caption("Success without a model on the same test pairs."), head, rows)


def _hyperparameters_table(choice: Choice, selected: Sequence[Selected]) -> Table:
    rows: list[Row] = []
    for each in selected:
        alewm, lewm = each.runs["ALeWM"][0].config, each.runs["LeWM (best d)"][0].config
        rows.append(
            [
                str(each.block.width),
                TASK_TITLES[each.block.task],
                f"{alewm.objective.regularizer_weight:g}",
                f"{alewm.training.optim.selector_multiplier:g}",
                f"{alewm.model.prior_degree:g}",
                str(lewm.model.latent_dim),
                f"{lewm.objective.regularizer_weight:g}",
            ]
        )
    how = (
        "Selected on validation pairs from the paper's grids."
        if choice.searches
        else ("ALeWM's are the rows the paper selected; LeWM's width is selected on validation pairs at λ = 0.09.")
    )
    head = ["d_max", "task", "ALeWM λ", "ALeWM s_q", "ALeWM α", "LeWM best d", "LeWM λ"]
    return Table.of("hyperparameters", choice.caption(f"Hyperparameters of the table of success. {how}"), head, rows)


def _counts_table(choice: Choice, selected: Sequence[Selected], results: Results, test: EvaluationSettings) -> Table:
    rows: list[Row] = []
    for each in selected:
        for run in each.runs["ALeWM"]:
            counts = results.evaluation(run, test)["capacity_counts"]
            text = ", ".join(f"{k}: {count}" for k, count in counts.items() if count)
            cell = Cell(text, commands=results.commands([run], test))
            rows.append([_title(each.block), TASK_TITLES[each.block.task], str(run.seed), cell])
    head = ["backbone (d_max)", "task", "seed", "planning capacity: episodes"]
    text = "How many test episodes ALeWM planned with each capacity; capacities never chosen are left out."
    return Table.of("capacity-counts", choice.caption(text), head, rows)


def _findings(selected: Sequence[Selected], results: Results, test: EvaluationSettings) -> tuple[str, ...]:
    """The text's ranges, computed."""
    points = [{m: _point(results, rows, test) for m, rows in each.runs.items()} for each in selected]
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


def _overview(selected: Sequence[Selected], results: Results, test: EvaluationSettings) -> Draw:
    widths = list(dict.fromkeys(each.block.width for each in selected))
    tasks = list(dict.fromkeys(each.block.task for each in selected))

    def spread(runs: Sequence[Run]) -> tuple[float, float, float, float]:
        k, rate = results.over_seeds(runs, test, "mean_capacity"), results.over_seeds(runs, test)
        return k.mean, 100 * rate.mean, k.sem or 0.0, 100 * (rate.sem or 0.0)

    points = [(each, {method: spread(each.runs[method]) for method in METHODS}) for each in selected]

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(3.1 * len(widths) + 0.9, 3.3), layout="constrained")
        panels = figure.subplots(1, len(widths), sharey=True, squeeze=False)[0]
        for axes, width in zip(panels, widths, strict=True):
            axes.set(title=f"{BACKBONES[width]}, d_max = {width}", xlabel="mean planning capacity")
            axes.set_xscale("log", base=2)
            for each, found in points:
                if each.block.width != width:
                    continue
                color = theme.color(tasks.index(each.block.task))
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
