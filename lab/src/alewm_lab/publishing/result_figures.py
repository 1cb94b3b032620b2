"""Published runs as figures: differences between methods, success, success against imposed capacity, q in training."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure

from alewm.report.figures import capacity_bands
from alewm.theme import Draw, Theme
from alewm_lab.experiments.capacity_dynamics import Dynamics
from alewm_lab.presentation import Curve, Point, panel_grid, success_curves
from alewm_lab.publishing.comparison_table import full_names
from alewm_lab.publishing.main_results import MethodComparison
from alewm_lab.publishing.published import Configuration, PublishedRun, RunGroup
from alewm_lab.publishing.result_tables import fixed_capacities, imposed_on, with_fixed_capacities

TITLE_WIDTH = 34
"""Characters of a line above a small panel."""
_COLORS = {"alewm": 0, "lewm": 1}
_COLOR_OF_OTHERS = 2
FEWEST_CAPACITIES = 3
"""Imposed capacities that make a curve; two are left to the table."""
MOST_POINTS = 50
"""Points of a curve of q; more cannot be told apart in a small panel."""


@dataclass(frozen=True)
class ResultFigure:
    """A figure with the numbers it shows."""

    name: str
    """Its file name."""
    caption: str
    data: Any
    """All numbers and words in it, as plain JSON values."""
    draw: Draw

    @property
    def digest(self) -> str:
        """Of its data: two figures with the same digest show the same."""
        return hashlib.sha256(json.dumps(self.data).encode()).hexdigest()[:16]


def difference_figure(found: Sequence[MethodComparison]) -> ResultFigure:
    """ALeWM minus LeWM of its width, beside the paper's difference."""
    rows: list[tuple[str, float, float, float, float]] = []
    for comparison in found:
        compared = comparison.compared
        name = f"{comparison.title}\n{comparison.schedule}; seeds: {comparison.seeds}, pairs: {compared.num_pairs:,}"
        low, high = (100 * bound for bound in compared.found.interval)
        (ours, *_), (theirs, *_) = comparison.papers
        rows.append((name, 100 * compared.found.difference, low, high, ours - theirs))

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(6.6, 1.1 + 0.5 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        for row, (_, difference, low, high, papers) in enumerate(rows):
            axes.plot([low, high], [row, row], color=theme.color(0), linewidth=2, alpha=0.6)
            axes.plot(difference, row, "o", color=theme.color(0), label="" if row else "our records, 95 % interval")
            axes.plot(papers, row, "D", color=theme.color(1), markersize=5, label="" if row else "paper, ten epochs")
        axes.axvline(0, color=theme.muted, linewidth=1)
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel="ALeWM minus LeWM, success (points)")
        axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
        axes.grid(axis="y", visible=False)
        figure.legend(loc="outside upper right", ncols=2)
        return figure

    caption = (
        "ALeWM minus LeWM of the same width, on the same pairs, beside the paper's difference. Intervals are over "
        "seeds and episodes (demonstrations where episodes are copies); with one seed they say nothing about other "
        "seeds."
    )
    return ResultFigure("differences", caption, [list(row) for row in rows], draw)


def success_figure(scale: RunGroup) -> ResultFigure | None:
    """Success of every configuration and seed, chance in grey; None where nothing was evaluated."""
    shown = [each for each in scale.configurations if each.evaluated()]
    if not shown:
        return None
    names, methods = full_names(shown), [each.config["objective"]["method"] for each in shown]
    rates = [[100 * result["success_rate"] for result in each.evaluated()] for each in shown]
    intervals = [[100 * bound for bound in each.evaluated()[0]["interval"]] for each in shown]
    first = shown[0].evaluated()[0]
    floors = {"random": 100 * first["random_success_rate"], "nothing": 100 * first["zero_success_rate"]}

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(6.2, 1.2 + 0.32 * len(names)), layout="constrained")
        axes = figure.add_subplot()
        for row, (seeds, interval) in enumerate(zip(rates, intervals, strict=True)):
            color = theme.color(_COLORS.get(methods[row], _COLOR_OF_OTHERS))
            if len(seeds) == 1:
                axes.plot(interval, [row, row], color=color, linewidth=2, alpha=0.5)
            else:
                mean = sum(seeds) / len(seeds)
                axes.plot([mean, mean], [row - 0.3, row + 0.3], color=color, linewidth=2)
            axes.plot(seeds, [row] * len(seeds), "o", color=color, markersize=5, alpha=0.8)
        for (name, rate), style in zip(floors.items(), ("--", ":"), strict=True):
            axes.axvline(rate, color=theme.muted, linestyle=style, linewidth=1, label=f"{name} {rate:.1f} %")
        axes.set(xlim=(-1, 101), ylim=(len(names) - 0.4, -0.6), xlabel="test success (%)")
        axes.set_yticks(range(len(names)), names)
        axes.grid(axis="y", visible=False)
        figure.legend(loc="outside upper right", ncols=2)
        return figure

    caption = "Test success: a dot per seed; their mean, or for one seed the 95 % interval, as a line; chance in grey."
    return ResultFigure(f"{scale.slug}-success", caption, [names, rates, intervals, floors], draw)


def sweep_figure(scale: RunGroup) -> ResultFigure | None:
    """Success against imposed capacity beside the operating point of the same seeds; None where no run has both."""
    shown = [each for each in map(_most_swept, with_fixed_capacities(scale)) if each.evaluated()]
    shown = [each for each in shown if len(fixed_capacities(each)) >= FEWEST_CAPACITIES]
    if not shown:
        return None
    curves = [
        Curve(
            name,
            tuple(Point.of(k, rate, _interval(each, f"capacity-{k}")) for k, rate in fixed_capacities(each).items()),
            Point.at(each.spread("mean_capacity"), each.spread("success_rate"), _interval(each)),
            "imposed capacity",
        )
        for name, each in zip(full_names(shown), shown, strict=True)
    ]
    data = [[curve.title, [list(astuple(point)) for point in (*curve.fixed, curve.star)]] for curve in curves]
    caption = (
        "Test success with every imposed capacity (line) and with the capacities chosen (star), of the same seeds; "
        "bars are SEM, or for one seed the 95 % interval."
    )
    return ResultFigure(f"{scale.slug}-capacities", caption, data, success_curves(curves, "as chosen"))


def _most_swept(configuration: Configuration) -> Configuration:
    """Its runs on which most capacities were imposed, the same on each: points of other seeds make no curve."""
    most = max(map(imposed_on, configuration.runs), key=len)
    return Configuration(tuple(run for run in configuration.runs if imposed_on(run) == most))


def _interval(configuration: Configuration, settings: str = "") -> list[float]:
    interval: list[float] = configuration.evaluated(settings)[0]["interval"]
    return interval


def dynamics_figure(scale: RunGroup) -> ResultFigure | None:
    """q per capacity over updates, a panel per run that learned it; None where none did."""
    chosen = [each for each in scale.configurations if each.runs[0].learns_q]
    panels = [
        (_title(f"{name}, seed = {run.seed}"), _bands(run))
        for name, each in zip(full_names(chosen), chosen, strict=True)
        for run in each.runs
    ]
    if not panels:
        return None
    caption = "Mean q of each capacity over updates, the smallest at the bottom; at update 0 it is the prior."
    return ResultFigure(f"{scale.slug}-dynamics", caption, panels, _stacked(panels))


def _title(name: str) -> str:
    """`name` in lines that fit a small panel, no value apart from what it is of."""
    return fill(name.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"), TITLE_WIDTH)


def _bands(run: PublishedRun) -> Dynamics:
    """The prior, and of many updates every n-th, counted from the last."""

    def few(series: list[float]) -> list[float]:
        first, *rest = series
        return [first, *rest[::-1][:: -(-len(rest) // MOST_POINTS)][::-1]]

    return {k: (few(steps), few(values)) for k, (steps, values) in run.dynamics().items()}


def _stacked(panels: Sequence[tuple[str, Dynamics]]) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, grid = panel_grid(len(panels), 3, panel=(2.6, 2.2), margin=(1.0, 0.0))
        for axes, (title, bands) in zip(grid, panels, strict=True):
            capacity_bands(axes, bands, theme)
            axes.set_title(title, fontsize=8)
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside right center")
        return figure

    return draw
