"""What tables and figures share: texts of cells, grids of panels, and success against capacity."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alewm.evaluation.statistics import Spread
from alewm.tables import Cell
from alewm.theme import Draw, Theme

NONE = "–"
"""Placeholder of a missing cell."""


def scientific(value: float) -> str:
    """A small number by its power of ten: 5e-5 and 2e-4, whichever of the two `format` would write as a decimal."""
    digits, _, exponent = f"{value:.5e}".partition("e")
    return f"{float(digits):g}e{int(exponent)}"


def mark_best(cells: Sequence[Cell], values: Sequence[float]) -> list[Cell]:
    """The cells, those with the largest of `values` marked."""
    top = max(values)
    return [Cell(cell.text, value == top, cell.commands) for cell, value in zip(cells, values, strict=True)]


@dataclass(frozen=True)
class Point:
    """Capacity with its SEM, and success in percent with the ends of its bar."""

    capacity: float
    capacity_sem: float
    success: float
    low: float
    high: float

    @classmethod
    def of(cls, capacity: int, success: Spread, interval: Sequence[float]) -> "Point":
        """At a capacity that is fixed; `interval` is that of the pairs, the bar of a single seed."""
        return cls(float(capacity), 0.0, 100 * success.mean, *_bar(success, interval))

    @classmethod
    def at(cls, capacity: Spread, success: Spread, interval: Sequence[float]) -> "Point":
        """At a capacity that varies over seeds."""
        return cls(capacity.mean, capacity.sem or 0.0, 100 * success.mean, *_bar(success, interval))


def _bar(success: Spread, interval: Sequence[float]) -> tuple[float, float]:
    """In percent: SEM over seeds, or the interval of the pairs where there is one seed."""
    if success.sem is None:
        return 100 * interval[0], 100 * interval[1]
    return 100 * (success.mean - success.sem), 100 * (success.mean + success.sem)


@dataclass(frozen=True)
class Curve:
    """One panel."""

    title: str
    fixed: tuple[Point, ...]
    """Success at fixed capacities."""
    star: Point
    """ALeWM's operating point."""
    fixed_label: str


def capacity_axis(axes: Axes, ks: Sequence[int] | Sequence[float]) -> None:
    """Capacities on a logarithmic axis, a tick each; those too close to the one before have no label."""
    labels, last = [], 0.0
    for k in ks:
        is_labelled = k == ks[-1] or (k >= 1.3 * last and 1.3 * k <= ks[-1])
        labels.append(f"{k:g}" if is_labelled else "")
        last = k if is_labelled else last
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, labels, fontsize=7)
    axes.minorticks_off()


def success_curves(curves: Sequence[Curve], star_label: str = "ALeWM") -> Draw:
    """A panel per curve, capacities on a logarithmic axis, with bars in both directions."""

    def draw(theme: Theme) -> Figure:
        figure, panels = panel_grid(len(curves), panel=(2.9, 2.9), margin=(0.5, 0.0))
        for axes, curve in zip(panels, curves, strict=True):
            ks = [point.capacity for point in curve.fixed]
            rates = [point.success for point in curve.fixed]
            axes.errorbar(
                ks,
                rates,
                _lengths(curve.fixed),
                color=theme.color(0),
                marker="o",
                ms=4,
                capsize=2,
                label=curve.fixed_label,
            )
            star = curve.star
            axes.errorbar(
                star.capacity,
                star.success,
                _lengths([star]),
                star.capacity_sem,
                color=theme.color(1),
                fmt="*",
                ms=11,
                capsize=2,
                label=star_label,
            )
            capacity_axis(axes, ks)
            axes.set(title=curve.title, xlabel="active prefix k")
        panels[0].set_ylabel("test success (%)")
        panels[0].legend()
        return figure

    return draw


def _lengths(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """How far bars reach below and above their points."""
    return [p.success - p.low for p in points], [p.high - p.success for p in points]


def panel_grid(
    count: int,
    most_columns: int | None = None,
    *,
    panel: tuple[float, float],
    margin: tuple[float, float] = (0.0, 0.0),
    sharey: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure and its `count` panels, in one row unless it would be too long; places left over stay empty.

    Sizes are in inches: of each `panel` with what is written around it, and of the `margin` all of them share.
    """
    columns = min(most_columns or count, count)
    rows = -(-count // columns)
    size = (panel[0] * columns + margin[0], panel[1] * rows + margin[1])
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(rows, columns, sharey=sharey, squeeze=False).flatten()
    for unused in places[count:]:
        unused.set_visible(False)
    return figure, list(places[:count])
