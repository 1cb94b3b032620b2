"""The figures of the experiment `theory`."""

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alewm.presentation.panels import panel_grid
from alewm.presentation.theme import Draw, Theme

Measured = Mapping[str, Mapping[str, Any]]
"""What was measured, by title of the panel."""


def variance_panels(found: Measured) -> Draw:
    """Masked variance of each coordinate beside the survival probabilities of prior and selector; raw, where given."""

    def panel(axes: Axes, theme: Theme, each: Mapping[str, Any]) -> None:
        x = range(1, len(each["masked_variance"]) + 1)
        if "raw_variance" in each:
            axes.plot(x, each["raw_variance"], color=theme.color(0), linewidth=1, label="variance, unmasked")
        axes.plot(x, each["masked_variance"], color=theme.color(1), linewidth=1.2, label="variance, masked")
        axes.step(x, each["prior_survival"], where="mid", color=theme.text, linewidth=1.2, label="survival, prior")
        axes.step(
            x, each["q_survival"], where="mid", color=theme.muted, linestyle="--", linewidth=1, label="survival, q"
        )
        axes.set(xlabel="latent coordinate", ylim=(0, None))

    return _panels(found, panel)


def losses_by_capacity(found: Measured) -> Draw:
    """Prediction error against the prefix: the model's own predictor and separately fitted probes."""

    def panel(axes: Axes, theme: Theme, each: Mapping[str, Any]) -> None:
        places = range(len(each["capacities"]))
        series = {"model": each["losses"], "probe, linear": each["risks"]["linear"]}
        series["probe, network"] = each["risks"]["network"]
        for index, (label, values) in enumerate(series.items()):
            shares = [value / each["total_variance"] for value in values]
            style = "-" if label == "model" else "--"
            axes.plot(places, shares, style, marker="o", ms=3, color=theme.color((1, 0, 2)[index]), label=label)
        axes.set_xticks(places, [str(k) for k in each["capacities"]], fontsize=7)
        axes.set(xlabel="prefix k", ylabel="share of variance", ylim=(0, None))

    return _panels(found, panel)


def _panels(found: Measured, panel: Callable[[Axes, Theme, Mapping[str, Any]], None]) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, grid = panel_grid(len(found), 3, panel=(3.0, 2.4), margin=(1.4, 0.0))
        for axes, (title, each) in zip(grid, found.items(), strict=True):
            panel(axes, theme, each)
            axes.set_title(title)
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right center")
        return figure

    return draw
