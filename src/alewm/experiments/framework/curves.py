"""Success against capacity: one panel per task, a curve of fixed capacities and a star where the selector plans."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alewm.evaluation.statistics import Spread
from alewm.presentation.theme import Draw, Theme


@dataclass(frozen=True)
class Point:
    """Capacity and success in percent, each with its SEM."""

    capacity: float
    capacity_sem: float
    success: float
    success_sem: float

    @classmethod
    def of(cls, capacity: int, success: Spread) -> "Point":
        """At a capacity that is fixed."""
        return cls(float(capacity), 0.0, 100 * success.mean, 100 * (success.sem or 0.0))

    @classmethod
    def at(cls, capacity: Spread, success: Spread) -> "Point":
        """At a capacity that varies over seeds."""
        return cls(capacity.mean, capacity.sem or 0.0, 100 * success.mean, 100 * (success.sem or 0.0))


@dataclass(frozen=True)
class Curve:
    """One panel."""

    title: str
    fixed: tuple[Point, ...]
    """Success at fixed capacities."""
    star: Point
    """ALeWM's operating point."""
    fixed_label: str = "fixed prefix"


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
    """A panel per curve, capacities on a logarithmic axis, bars of SEM in both directions."""

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(2.9 * len(curves) + 0.5, 2.9), layout="constrained")
        panels = figure.subplots(1, len(curves), squeeze=False)[0]
        for axes, curve in zip(panels, curves, strict=True):
            ks = [point.capacity for point in curve.fixed]
            rates, errors = [p.success for p in curve.fixed], [p.success_sem for p in curve.fixed]
            axes.errorbar(ks, rates, errors, color=theme.color(0), marker="o", ms=4, capsize=2, label=curve.fixed_label)
            star = curve.star
            axes.errorbar(
                star.capacity,
                star.success,
                star.success_sem,
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
