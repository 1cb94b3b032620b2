"""Curves over update steps."""

import math
from collections.abc import Sequence

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
