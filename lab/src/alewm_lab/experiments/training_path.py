"""What a model did on its way: how far q went from the prior, and when prediction came."""

from collections.abc import Mapping, Sequence

import torch

from alewm.evaluation.statistics import Spread, total_variation
from alewm.theme import Series
from alewm_lab.table_formats import NONE

PATH_HEAD = ("q farthest from π₀", "at update", "q from π₀ at the end", "prediction halved at update")
"""Above what `path_cells` gives."""

PATH_LEGEND = (
    "the largest total variation between mean q and the prior π₀, the update at which q was that far, and how far it "
    "ended; and the first update after the highest prediction loss at which that is at most half as high, – if it "
    "never is (losses are means since the last logged update; updates are those of each seed)"
)
"""What they mean."""

Dynamics = Mapping[int, Series]
"""Steps and mean q of each capacity; at the first step it is the prior."""


def starting_at(prior: Sequence[float], logged: Mapping[int, Series]) -> Dynamics:
    """What was `logged` of each capacity, in their order, with the prior before it."""
    return {
        k: ([0.0, *steps], [first, *values]) for first, (k, (steps, values)) in zip(prior, logged.items(), strict=True)
    }


def distance_from_prior(dynamics: Dynamics) -> Series:
    """Steps, and at each the total variation between mean q and the prior."""
    steps = next(iter(dynamics.values()))[0]
    q = torch.tensor([values for _, values in dynamics.values()], dtype=torch.float64).T
    return steps, total_variation(q, q[0]).tolist()


def farthest(series: Series) -> tuple[float, float]:
    """The first step at which the values are largest, and that value."""
    steps, values = series
    top = values.index(max(values))
    return steps[top], values[top]


def halved_at(series: Series) -> float | None:
    """The first step from that of the highest value on at which it is at most half as high; None if it never is.

    What is low before does not count: a latent that has collapsed is predicted well.
    """
    steps, values = series
    top = values.index(max(values))
    low = (step for step, value in zip(steps[top:], values[top:], strict=True) if value <= values[top] / 2)
    return next(low, None)


def path_cells(dynamics: Sequence[Dynamics], losses: Sequence[Series]) -> list[str]:
    """Texts below `PATH_HEAD` of the seeds of one configuration; it has no `dynamics` where q does not move."""
    cells = [NONE] * 3
    if dynamics:
        ways = [distance_from_prior(each) for each in dynamics]
        far = [farthest(way) for way in ways]
        cells = [
            Spread.of([distance for _, distance in far]).shown(),
            ", ".join(f"{step:.0f}" for step, _ in far),
            Spread.of([distances[-1] for _, distances in ways]).shown(),
        ]
    halved = [halved_at(series) for series in losses]
    return [*cells, ", ".join(NONE if step is None else f"{step:.0f}" for step in halved)]
