"""How figures look: colours for light and dark pages, thinned curves, compact SVG."""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Tick
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

Series = tuple[list[float], list[float]]
"""Steps and values of one metric."""

MOST_POINTS = 400
"""Longer curves are averaged down to this many points."""


def thinned(series: Series, most: int = MOST_POINTS) -> Series:
    """The series, averaged over equal runs of neighbouring points if it is long."""
    steps, values = series
    if len(steps) <= most:
        return series
    size = math.ceil(len(steps) / most)
    parts = [slice(i, i + size) for i in range(0, len(steps), size)]
    return [_mean(steps[part]) for part in parts], [_mean(values[part]) for part in parts]


def simplified(series: Series, tolerance: float) -> Series:
    """The points of a curve that straight lines need to stay within `tolerance` of all its values.

    Douglas and Peucker's rule: between two kept points the farthest one is kept too, unless it is near enough.
    """
    steps, values = series
    kept, open_spans = {0, len(steps) - 1}, [(0, len(steps) - 1)]
    while open_spans:
        first, last = open_spans.pop()
        if last - first < 2:
            continue
        slope = (values[last] - values[first]) / (steps[last] - steps[first])
        off = [abs(values[i] - values[first] - slope * (steps[i] - steps[first])) for i in range(first + 1, last)]
        if max(off) > tolerance:
            middle = first + 1 + off.index(max(off))
            kept.add(middle)
            open_spans += [(first, middle), (middle, last)]
    return [steps[i] for i in sorted(kept)], [values[i] for i in sorted(kept)]


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

_FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Where the font of the layout is missing, Verdana's letters have the same widths; text stays text."""

Draw = Callable[[Theme], Figure]
"""A figure that is drawn when the theme is known."""


def new_axes(width: float = 3.9, height: float = 2.5) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, small enough to be read on a phone without zooming."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def as_svg(draw: Draw) -> bytes:
    """The figure as one SVG that follows the reader's light or dark setting; equal bytes for equal data."""
    return compact_svg(rendered(draw, "svg").decode()).encode()


def plotted(draw: Draw, curves: Sequence[tuple[str, int, Series]]) -> tuple[bytes, dict[str, Any]]:
    """The figure as `as_svg` gives it, and where its curves are, so that a page can show values under the pointer.

    `curves` are the names, colours and points of what is drawn in the figure's only axes, in linear steps.
    """
    drawn: list[Figure] = []

    def remember(theme: Theme) -> Figure:
        drawn.append(draw(theme))
        return drawn[-1]

    svg = as_svg(remember)
    axes = drawn[0].axes[0]
    place = axes.get_position()
    return svg, {
        "box": [round(value, 4) for value in (place.x0, place.y0, place.x1, place.y1)],
        "x": list(map(float, axes.get_xlim())),
        "curves": [
            {"name": name, "color": color % len(LIGHT.palette), "x": x, "y": [float(f"{value:.4g}") for value in y]}
            for name, color, (x, y) in ((name, color, thinned(series)) for name, color, series in curves)
        ],
    }


def rendered(draw: Draw, kind: Literal["svg", "png"]) -> bytes:
    """The figure in light colours, as SVG for `compact_svg` or as PNG on white."""
    theme = LIGHT
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
        "svg.fonttype": "none",
    }
    with matplotlib.rc_context(settings):
        buffer, figure = io.BytesIO(), draw(theme)
        _take_names_literally(figure)
        if kind == "svg":
            figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
            return buffer.getvalue()
        figure.savefig(buffer, format="png", facecolor="white", dpi=160)
    return buffer.getvalue()


def _take_names_literally(figure: Figure) -> None:
    """Titles, labels and legends hold names of runs, in which `$` begins no formula; powers at ticks are formulas."""
    at_ticks = {text for tick in figure.findobj(Tick) for text in tick.findobj(Text)}
    for text in set(figure.findobj(Text)) - at_ticks:
        text.set_parse_math(False)


def compact_svg(svg: str) -> str:
    """Matplotlib's drawing without what nobody sees, its styles as classes that have dark colours on a dark page.

    A light page is the default, also of programs that do not know `prefers-color-scheme`.
    """
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<!DOCTYPE.*?>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(?<= d=")[^"]*', lambda path: _short_path(path[0]), svg)
    svg = re.sub(r'( (?:x|y)="|(?:translate|rotate)\()[^")]*', lambda place: _two_decimals(place[0]), svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg).replace("'DejaVu Sans'", _FONTS)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # nothing refers to groups; clip paths, markers and glyphs keep theirs
    classes: dict[str, str] = {}

    def as_class(style: re.Match[str]) -> str:
        return f' class="{classes.setdefault(style[1], f"s{len(classes)}")}"'

    svg = re.sub(r' style="([^"]*)"', as_class, svg)
    light = "".join(f".{name}{{{style}}}\n" for style, name in classes.items())
    dark = "".join(f".{name}{{{_darkened(style)}}}\n" for style, name in classes.items() if _darkened(style))
    svg = svg.replace("</style>", f"\n{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n</style>", 1)
    return "".join(f"{line.strip()}\n" for line in svg.splitlines() if line.strip())


def _short_path(path: str) -> str:
    """A path to a hundredth of a point, without spaces around its letters."""
    return re.sub(r" ?([A-Za-z]) ?", r"\1", _two_decimals(" ".join(path.split())))


def _two_decimals(text: str) -> str:
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", text)


def _darkened(style: str) -> str:
    """The declarations of a style that have another colour on a dark page, with that colour."""
    light = (LIGHT.text, LIGHT.muted, LIGHT.grid, *LIGHT.palette)
    exchange = dict(zip(light, (DARK.text, DARK.muted, DARK.grid, *DARK.palette), strict=True))
    found = (declaration.split(":") for declaration in style.split(";"))
    return "; ".join(f"{name.strip()}: {exchange[value.strip()]}" for name, value in found if value.strip() in exchange)
