"""Published runs while they trained: where q went, and when prediction came."""

from alewm.tables import Row, Table
from alewm_lab.experiments.training_path import PATH_HEAD, PATH_LEGEND, path_cells
from alewm_lab.publishing.configuration_names import COLUMNS, named_columns
from alewm_lab.publishing.published import Scale


def path_table(scale: Scale, note: str) -> Table | None:
    """What q and prediction did; None where no run has metrics."""
    shown = scale.only(lambda run: "prediction" in run.run.scalars())
    rows: list[Row] = []
    for named, each in zip(named_columns(shown), shown, strict=True):
        dynamics = [run.dynamics() for run in each.runs if run.learns_q]
        losses = [run.run.scalars()["prediction"] for run in each.runs]
        rows.append([*named, each.seeds, *path_cells(dynamics, losses)])
    caption = f"On the way: {PATH_LEGEND}.{note}"
    return Table.of(f"{scale.slug}-path", caption, [*COLUMNS, "seeds", *PATH_HEAD], rows) if rows else None
