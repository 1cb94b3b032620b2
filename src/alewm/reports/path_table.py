"""Published runs while they trained: where q went, and when prediction came."""

from alewm.evaluation.statistics import Spread
from alewm.experiments.framework.training_path import distance_from_prior, farthest, halved_at
from alewm.presentation.tables import Row, Table
from alewm.reports.configuration_names import COLUMNS, NONE, named_columns
from alewm.reports.published import Scale

_CAPTION = (
    "On the way: the largest total variation between mean q and the prior π₀, the update at which q was that far, how "
    "far it ended, and the update at which the prediction loss had fallen to half of its highest value; of the updates "
    "whose metrics are published."
)


def path_table(scale: Scale, note: str) -> Table | None:
    """What q and prediction did; None where no run has metrics."""
    shown = scale.only(lambda run: "prediction" in run.run.scalars())
    rows: list[Row] = []
    for named, each in zip(named_columns(shown), shown, strict=True):
        cells = [NONE] * 3
        if each.runs[0].learns_q:
            ways = [distance_from_prior(run.dynamics()) for run in each.runs]
            far = [farthest(way) for way in ways]
            cells = [
                Spread.of([distance for _, distance in far]).shown(),
                ", ".join(f"{step:.0f}" for step, _ in far),
                Spread.of([distances[-1] for _, distances in ways]).shown(),
            ]
        halved = ", ".join(f"{halved_at(run.run.scalars()['prediction']):.0f}" for run in each.runs)
        rows.append([*named, each.seeds, *cells, halved])
    head = [*COLUMNS, "seeds", "q farthest from π₀", "at update", "q from π₀ at the end", "prediction halved at update"]
    return Table.of(f"{scale.slug}-path", _CAPTION + note, head, rows) if rows else None
