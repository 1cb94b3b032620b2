"""Figures of several panels of one size."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure


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
