"""Small tables of numbers as CSV: written rounded, read back as numbers."""

import csv
import io
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from alewm.errors import InputError
from alewm.runs.metrics import is_number


def rounded(value: Any) -> str:
    """A number to five significant digits, true and false as 1 and 0, words as they are."""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """The rows under the names of all their columns; what a row lacks stays empty."""
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([rounded(row[name]) if name in row else "" for name in names] for row in rows)
    return buffer.getvalue()


def read_csv(path: Path, needed: Collection[str] = ()) -> list[dict[str, Any]]:
    """The rows of `path`, numbers as numbers; empty cells are left out. Every row has finite numbers in `needed`."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [{name: _value(text) for name, text in row.items() if text} for row in csv.DictReader(file)]
    except (UnicodeDecodeError, csv.Error, AttributeError, TypeError) as error:
        raise InputError(f"{path} is not a table of comma-separated values: {error}") from error
    for number, row in enumerate(rows, 1):
        if missing := [name for name in needed if not is_number(row.get(name))]:
            raise InputError(f"{path}, row {number}, has no number for {' and '.join(missing)}. Publish the run again.")
    return rows


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
