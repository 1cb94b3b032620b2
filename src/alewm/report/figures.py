"""One function per figure: from data to a drawing that takes its theme later."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alewm.evaluation.imagination import HOLDING_STILL
from alewm.evaluation.success import EpisodeRecord
from alewm.report.gather import Run
from alewm.theme import Draw, Series, Theme, new_axes, simplified, thinned

LARGEST_DEVIATION = 0.006
"""How far a simplified curve may be from the true one, as a share of a panel's height: under a point in a small one."""


def metric_curves(curves: Mapping[int, Series], names: Sequence[str], title: str) -> Draw:
    """One metric over update steps, a line per run; logarithmic where it spans more than a factor of 20.

    The last fifth does not count for that: a learning rate that ends at zero is no curve over many decades.
    """

    def draw(theme: Theme) -> Figure:
        figure, axes = new_axes()
        for run, series in curves.items():
            steps, values = thinned(series)
            marker = "o" if len(steps) == 1 else None
            axes.plot(steps, values, color=theme.color(run), label=names[run], marker=marker, markersize=4)
        values = [value for _, ys in curves.values() for value in ys[: max(1, len(ys) * 4 // 5)]]
        if min(values) > 0 and max(values) > 20 * min(values):
            axes.set_yscale("log")
        axes.set(title=title, xlabel="update steps")
        if len(names) > 1:
            figure.legend(loc="outside lower center", ncols=2)
        return figure

    return draw


def capacity_dynamics(curves: Mapping[int, Series], title: str) -> Draw:
    """Mean q(k) over update steps as stacked bands, the smallest capacity at the bottom."""

    def draw(theme: Theme) -> Figure:
        figure, axes = new_axes()
        capacity_bands(axes, curves, theme)
        axes.set_title(title)
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1, 0.5))
        return figure

    return draw


def capacity_bands(axes: Axes, curves: Mapping[int, Series], theme: Theme) -> None:
    """Stack mean q(k) over update steps on `axes`, each band labelled with its capacity."""
    thin = {k: thinned(series) for k, series in curves.items()}
    steps = min((series[0] for series in thin.values()), key=len)
    tops = [0.0] * len(steps)
    for rank, (color, (k, (_, values))) in enumerate(zip(theme.shades(len(thin)), thin.items(), strict=True)):
        tops = [top + value for top, value in zip(tops, values, strict=False)]
        # Each band reaches down to zero and lies behind the one below it, so that every edge is drawn once.
        shown = simplified((steps, tops), LARGEST_DEVIATION)
        axes.fill_between(*shown, color=color, label=f"k = {k}", linewidth=0, zorder=1 - rank / 1000)
    axes.set(xlabel="update steps", ylabel="mean q(k)", ylim=(0, 1))
    if len(steps) > 1:
        axes.set_xlim(steps[0], steps[-1])
    axes.grid(False)


def masked_variance(variance: Sequence[float], survival: Sequence[float], title: str, color: int) -> Draw:
    """Variance of each masked coordinate beside the probability that the prior leaves it active."""

    def draw(theme: Theme) -> Figure:
        figure, axes = new_axes()
        coordinates = range(1, len(variance) + 1)
        axes.plot(coordinates, variance, color=theme.color(color), label="masked variance", linewidth=1.2)
        axes.step(range(1, len(survival) + 1), survival, where="mid", color=theme.muted, label="prior survival")
        axes.set(title=title, xlabel="latent coordinate", ylim=(0, None))
        axes.legend()
        return figure

    return draw


def success_rates(runs: Sequence[Run]) -> Draw:
    """Success with its 95 % interval over all pairs and over those not solved at the start, beside the floors."""

    def draw(theme: Theme) -> Figure:
        figure, axes = new_axes(height=1.5 + 0.55 * len(runs))
        for row, run in enumerate(runs):
            color = theme.color(run.color)
            for rate, interval, y, marker, label in (
                ("success_rate", "interval", row - 0.14, "o", "all pairs"),
                ("success_rate_nontrivial", "interval_nontrivial", row + 0.14, "D", "not solved at the start"),
            ):
                if run.result.get(rate) is None:
                    continue
                if interval in run.result:
                    reach = run.result[interval]
                    axes.plot(reach, [y, y], color=color, linewidth=2, solid_capstyle="round", alpha=0.55)
                axes.plot(run.result[rate], y, marker, color=color, markersize=5.5, label=label)
            for key, marker, label in (
                ("random_success_rate", "x", "uniform random"),
                ("zero_success_rate", "|", "doing nothing"),
            ):
                if run.result.get(key) is not None:
                    axes.plot(run.result[key], row, marker, color=theme.muted, markersize=8, label=label)
        axes.set(xlim=(-0.02, 1.02), ylim=(len(runs) - 0.5, -0.5), xlabel="success rate, with 95 % intervals")
        axes.set_yticks(range(len(runs)), [run.name.replace("$", r"\$") for run in runs])
        axes.grid(axis="y", visible=False)
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels[::-1], handles[::-1], strict=True))
        figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=2)
        return figure

    return draw


def chosen_capacities(runs: Sequence[Run]) -> Draw:
    """Share of episodes planned with each capacity (bars), with the selector's mean q (dots)."""

    def draw(theme: Theme) -> Figure:
        figure, axes = new_axes()
        capacities = sorted({int(k) for run in runs for k in run.result["capacity_counts"]})
        width = 0.8 / len(runs)
        for index, run in enumerate(runs):
            counts = {int(k): count for k, count in run.result["capacity_counts"].items()}
            places = [i + (index - (len(runs) - 1) / 2) * width for i in range(len(capacities))]
            total = sum(counts.values()) or 1
            shares = [counts.get(k, 0) / total for k in capacities]
            axes.bar(places, shares, width * 0.92, color=theme.color(run.color), label=run.name, alpha=0.85)
            q = dict(zip(run.result.get("support", []), run.result.get("q_mean", []), strict=False))
            dots = [(place, q[k]) for place, k in zip(places, capacities, strict=True) if k in q]
            if len(q) > 1:
                axes.plot(*zip(*dots, strict=True), "o", color=theme.text, markersize=3.5)
        axes.set(xlabel="capacity k", ylabel="share of episodes", ylim=(0, 1.05))
        axes.set_xticks(range(len(capacities)), [str(k) for k in capacities])
        axes.grid(axis="x", visible=False)
        if len(runs) > 1:
            figure.legend(loc="outside lower center", ncols=2)
        return figure

    return draw


def imagination_errors(errors: Mapping[str, Mapping[str, Sequence[float]]], own: str, title: str, color: int) -> Draw:
    """The error of open-loop imagination by blocks ahead; a band for the run's own capacity and for holding still."""

    def draw(theme: Theme) -> Figure:
        figure, axes = new_axes(width=5.2, height=3.1)
        others = [name for name in errors if name not in (own, HOLDING_STILL) and not name.startswith("distilled")]
        shades = dict(zip(others, theme.shades(len(others)), strict=True))
        for name, band in sorted(errors.items(), key=lambda item: item[0] == HOLDING_STILL):
            ahead = range(1, len(band["mean"]) + 1)
            strong = name in (own, HOLDING_STILL)
            shade = theme.color(color) if name.removeprefix("distilled, ") == own else shades.get(name, theme.muted)
            style = "--" if name.startswith("distilled") else "-"
            axes.plot(ahead, band["mean"], style, color=shade, linewidth=2 if strong else 1.1, label=name)
            if strong:
                axes.fill_between(ahead, band["low"], band["high"], color=shade, alpha=0.15, linewidth=0)
        axes.set(title=title, xlabel="blocks ahead", ylabel="error / variance of the latent", yscale="log")
        axes.set_xticks(range(1, 1 + max(len(band["mean"]) for band in errors.values())))
        figure.legend(loc="outside right upper")
        return figure

    return draw


def distance_over_time(records: Sequence[EpisodeRecord], title: str, color: int) -> Draw:
    """Distance to the goal after every step, one thin line per episode; failures in grey."""

    def draw(theme: Theme) -> Figure:
        figure, axes = new_axes()
        shown = sorted(records, key=lambda record: record.success)
        for record in shown:
            shade, alpha = (theme.color(color), 0.45) if record.success else (theme.muted, 0.6)
            axes.plot(range(len(record.distances)), record.distances, linewidth=0.7, color=shade, alpha=alpha)
        reached = sum(record.success for record in records)
        axes.plot([], [], color=theme.color(color), label=f"reached ({reached})")
        axes.plot([], [], color=theme.muted, label=f"not reached ({len(records) - reached})")
        axes.set(title=title, xlabel="environment steps", ylabel="distance to the goal", ylim=(0, None))
        axes.legend()
        return figure

    return draw
