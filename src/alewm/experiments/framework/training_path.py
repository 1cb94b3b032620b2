"""What a model did on its way: how far q went from the prior, and when prediction came."""

from collections.abc import Mapping

from alewm.presentation.series import Series

Dynamics = Mapping[int, Series]
"""Steps and mean q of each capacity; at the first step it is the prior."""


def distance_from_prior(dynamics: Dynamics) -> Series:
    """Steps, and at each the total variation between mean q and the prior."""
    steps = next(iter(dynamics.values()))[0]
    of_capacities = [values for _, values in dynamics.values()]
    return steps, [sum(abs(values[i] - values[0]) for values in of_capacities) / 2 for i in range(len(steps))]


def farthest(series: Series) -> tuple[float, float]:
    """The first step at which the values are largest, and that value."""
    steps, values = series
    top = values.index(max(values))
    return steps[top], values[top]


def halved_at(series: Series) -> float:
    """The first step from that of the highest value on at which it is at most half as high; the last if it never is.

    What is low before does not count: a latent that has collapsed is predicted well.
    """
    steps, values = series
    top = values.index(max(values))
    low = (step for step, value in zip(steps[top:], values[top:], strict=True) if value <= values[top] / 2)
    return next(low, steps[-1])
