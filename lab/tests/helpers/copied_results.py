"""Published records to change at will: copies of one that is in the repository."""

import shutil
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest

from alewm_lab.publishing.publication import publication_text, read_group, read_publication, write_publication
from alewm_lab.publishing.results_page import results_page

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results"
OF_EXAMPLE = {
    "success_rate": 0.985,
    "interval": [0.957, 0.995],
    "success_rate_nontrivial": 0.9838,
    "interval_nontrivial": [0.953, 0.994],
}
"""What copies of it say instead, so that tests do not depend on how well some model plans."""


@cache
def example() -> list[dict]:
    """One run with its default evaluation, as published."""
    parts = read_group(RESULTS / "two-room-short")
    return [
        row for part, found in parts.items() if part.run == "alewm-192-3073" and not part.name for row in found.rows
    ]


@pytest.fixture
def published(tmp_path):
    """Publishes a copy of the example below `tmp_path` with other values in its rows; the folder of all copies."""
    results = tmp_path / "results"
    results.mkdir()
    shutil.copyfile(RESULTS / "paper.json", results / "paper.json")

    def publish(name, *, config=(), evaluation="", **result):
        if not file_of(results, name).exists():
            write(results, name, [row | {"run": name} for row in deepcopy(example())])
            change(results, name, "evaluation", OF_EXAMPLE)
            # as if the data had come from elsewhere
            edit(results, name, "run", lambda row: row["provenance"]["data"].pop("made_with"))
        change(results, name, "run", {f"config.{field}": value for field, value in dict(config).items()})
        if evaluation:
            (default,) = [row for row in rows_of(results, name, "evaluation") if not row["settings"]]
            add(results, name, [default | {"settings": evaluation}])
        change(results, name, "run", {field: v for field, v in result.items() if field.startswith("training")})
        own = {field: value for field, value in result.items() if not field.startswith("training")}
        change(results, name, "evaluation", own, settings=evaluation)
        return results

    return publish


def file_of(results: Path, run: str) -> Path:
    return results / "here" / f"{run}.jsonl.gz"


def rows_of(results: Path, run: str, table: str = "") -> list[dict]:
    return [row for row in read_publication(file_of(results, run)) if table in ("", row["table"])]


def write(results: Path, run: str, rows: Iterable[dict]) -> None:
    write_publication(file_of(results, run), publication_text(rows))


def add(results: Path, run: str, rows: Iterable[dict]) -> None:
    write(results, run, [*rows_of(results, run), *rows])


def replace_table(results: Path, run: str, table: str, rows: Iterable[dict]) -> None:
    """Other rows in the place of those of one table."""
    others = [row for row in rows_of(results, run) if row["table"] != table]
    write(results, run, [*others, *({"table": table, "run": run, **row} for row in rows)])


def edit(results: Path, run: str, table: str, change_row: Callable[[dict], object], **where) -> None:
    """Every row of one table that has the values `where`, changed."""
    rows = rows_of(results, run)
    for row in rows:
        if row["table"] == table and where.items() <= row.items():
            change_row(row)
    write(results, run, rows)


def change(results: Path, run: str, table: str, changes: dict, **where) -> None:
    """Other values in fields named by dotted paths; a metric such as `training.validation/loss` is one field."""

    def change_row(row):
        for name, value in changes.items():
            *outer, last = name.split(".")
            place = row
            for part in outer:
                place = place[part]
            place[last] = value

    edit(results, run, table, change_row, **where)


def page_of(results: Path) -> str:
    return results_page(results, results.parent / "docs" / "results.md")[0]


def table_rows(text: str) -> list[list[str]]:
    """The cells of every row of the tables in `text`, their heads and rules too."""
    lines = (line for line in text.splitlines() if line.startswith("| "))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
