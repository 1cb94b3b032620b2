"""How figures look: colours for light and dark pages, thinned curves, grids of panels."""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

Series = tuple[list[float], list[float]]
"""Steps and values of one metric."""

MOST_POINTS = 400
"""Longer curves are averaged down to this many points: more cannot be seen and would make a page heavy."""


def thinned(series: Series, most: int = MOST_POINTS) -> Series:
    """The series, averaged over equal runs of neighbouring points if it is long."""
    steps, values = series
    if len(steps) <= most:
        return series
    size = math.ceil(len(steps) / most)
    parts = [slice(i, i + size) for i in range(0, len(steps), size)]
    return [_mean(steps[part]) for part in parts], [_mean(values[part]) for part in parts]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True)
class Theme:
    """Colours of a figure; its background is the page's."""

    name: str
    """`light` or `dark`."""

    text: str
    """Labels."""

    muted: str
    """Ticks, floors, references."""

    grid: str
    """Lines behind the data."""

    palette: tuple[str, ...]
    """One colour per run, distinguishable without hue too."""

    def color(self, index: int) -> str:
        """The colour of the run at `index`."""
        return self.palette[index % len(self.palette)]

    def shades(self, count: int) -> list[str]:
        """Ordered colours for `count` capacities, dark to bright."""
        shades = colormaps["viridis"]
        return [to_hex(shades(0.1 + 0.8 * i / max(1, count - 1))) for i in range(count)]


LIGHT = Theme(
    name="light",
    text="#1c1c1e",
    muted="#6e6e73",
    grid="#e3e3e6",
    palette=("#0b62a4", "#c2410c", "#15803d", "#7e22ce", "#0f766e", "#a16207"),
)
DARK = Theme(
    name="dark",
    text="#f2f2f3",
    muted="#a1a1a8",
    grid="#3a3a3f",
    palette=("#5aa9e6", "#fb923c", "#4ade80", "#c084fc", "#2dd4bf", "#facc15"),
)

Draw = Callable[[Theme], Figure]
"""A figure that is drawn when the theme is known."""


def new_axes(width: float = 3.9, height: float = 2.5) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, small enough to be read on a phone without zooming."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def light_and_dark(draw: Draw) -> tuple[bytes, bytes]:
    """The figure as SVG for a light and for a dark page; equal bytes for equal data.

    It is drawn once: the dark one is the light one with its colours exchanged, so that the two cannot differ otherwise.
    """
    light = _rendered(draw, LIGHT, "svg").decode()
    exchange = dict(
        zip(
            (LIGHT.text, LIGHT.muted, LIGHT.grid, *LIGHT.palette),
            (DARK.text, DARK.muted, DARK.grid, *DARK.palette),
            strict=True,
        )
    )
    dark = re.sub("|".join(exchange), lambda found: exchange[found[0]], light)
    return light.encode(), dark.encode()


def as_png(draw: Draw) -> bytes:
    """The figure as PNG on white, for where SVG is not shown."""
    return _rendered(draw, LIGHT, "png")


def _rendered(draw: Draw, theme: Theme, kind: Literal["svg", "png"]) -> bytes:
    settings: Any = {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "text.color": theme.text,
        "axes.labelcolor": theme.text,
        "axes.edgecolor": theme.muted,
        "axes.facecolor": "none",
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": theme.grid,
        "grid.linewidth": 0.7,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "lines.linewidth": 1.6,
        "svg.hashsalt": "alewm",
        "svg.fonttype": "path",
    }
    with matplotlib.rc_context(settings):
        buffer = io.BytesIO()
        if kind == "svg":
            draw(theme).savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
            return _two_decimals(buffer.getvalue().decode()).encode()
        draw(theme).savefig(buffer, format="png", facecolor="white", dpi=160)
    return buffer.getvalue()


def _two_decimals(svg: str) -> str:
    """The drawing with its lines to a hundredth of a point: nobody sees more, and it is half as large."""

    def shorter(path: re.Match[str]) -> str:
        return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", path[0])

    return re.sub(r' d="[^"]*"', shorter, svg)


def panel_grid(
    count: int,
    most_columns: int,
    *,
    panel: tuple[float, float],
    margin: tuple[float, float] = (0.0, 0.0),
    sharey: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure and its `count` panels, row by row; places in the last row that are left over stay empty.

    Sizes are in inches: of each `panel` with what is written around it, and of the `margin` all of them share.
    """
    columns = min(most_columns, count)
    rows = -(-count // columns)
    size = (panel[0] * columns + margin[0], panel[1] * rows + margin[1])
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(rows, columns, sharey=sharey, squeeze=False).flatten()
    for unused in places[count:]:
        unused.set_visible(False)
    return figure, list(places[:count])
