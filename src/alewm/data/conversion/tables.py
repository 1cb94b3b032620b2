"""Tables of numbers, CSV or Parquet, as columns; a value that is none is named by file and row."""

import csv
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from alewm.data.conversion.frames import required
from alewm.errors import InputError

TABLE_SUFFIXES = (".csv", ".parquet")

Columns = dict[str, np.ndarray]


def read_table(path: Path) -> Columns:
    """The columns of a table by name."""
    return _read_table(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)  # the latest one, since all its episodes are read in a row
def _read_table(path: Path, modified_ns: int) -> Columns:
    return _read_csv(path) if path.suffix.lower() == ".csv" else parquet_columns(path)


def place(path: Path, row: int) -> str:
    """Where row `row` (from 0) of a table is found: the line of a CSV file, which has a header; else the row."""
    return f"{path}, line {row + 2}" if path.suffix.lower() == ".csv" else f"{path}, row {row}"


def _read_csv(path: Path) -> Columns:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text ({error}). Save it as CSV in UTF-8.") from None
    names = [name.strip() for name in header]
    named = {i: name for i, name in enumerate(names) if name}  # others are counters that table programs put first
    if not rows or len(set(named.values())) != len(named):
        raise InputError(f"{path}: a header with distinct names and rows below it were expected, found {header}.")
    rows = [row for row in rows if row]  # a last line without anything is no row
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise InputError(f"{place(path, i)}: {len(row)} values under {len(names)} names. Complete the line.")
    return {name: np.array([row[i].strip() for row in rows]) for i, name in named.items()}


def parquet_columns(path: Path, episode: int | None = None) -> Columns:
    """The columns of a Parquet file that hold numbers, text or images; of rows with this `episode_index` only."""
    parquet, arrow = required("pyarrow.parquet", path), required("pyarrow", path)
    if not path.is_file():
        raise InputError(f"{path} does not exist. Restore the file and repeat the command.")
    try:
        _check_size(path, parquet.read_metadata(path))
        filters = None if episode is None else [("episode_index", "=", episode)]
        # Not as a data set: folders named `name=value` on the way to the file are no columns of it.
        table = parquet.read_table(path, filters=filters, partitioning=None)
        return {name: as_array(table.column(name)) for name in table.column_names}
    except InputError:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is no text
        raise InputError(f"{path}: not a Parquet file that can be read ({error}). Replace it.") from None


MOST_TABLE_BYTES = 2**30
"""What a table may take in memory, or more where the file is large itself: a small one can declare any number of
rows."""
_MOST_COMPRESSION = 1000


def _check_size(path: Path, declared: Any) -> None:
    """Refuse more rows than the file can hold, before memory is taken for them."""
    least = 8 * declared.num_rows * max(1, declared.num_columns)
    if least > max(MOST_TABLE_BYTES, _MOST_COMPRESSION * path.stat().st_size):
        size = f"{path.stat().st_size:,} bytes"
        raise InputError(f"{path}: {declared.num_rows:,} rows are declared in a file of {size}. Replace it.")


def as_array(column: Any) -> np.ndarray:
    """An Arrow column: numbers as they are, lists of equal length as rows; everything else as objects."""
    values = column.to_pylist()
    if values and isinstance(values[0], list):
        try:
            return np.array([[np.nan if v is None else v for v in row] for row in values])
        except (ValueError, TypeError):
            return np.fromiter(values, dtype=object, count=len(values))
    array: np.ndarray = column.to_numpy()
    return array


def as_numbers(path: Path, name: str, values: np.ndarray, first_row: int = 0) -> np.ndarray:
    """`values` of column `name` as float64; an empty cell is NaN, other text is refused by its row."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    numbers = np.empty(len(values))
    for i, value in enumerate(values):
        try:
            numbers[i] = np.nan if value is None or value == "" else float(value)
        except (TypeError, ValueError):
            where = place(path, first_row + i)
            raise InputError(f"{where}, column {name!r}: a number was expected, found {str(value)!r}.") from None
    return numbers


def are_numbers(values: np.ndarray) -> bool:
    """Whether an extra column can be stored."""
    if values.dtype.kind in "biuf":
        return True
    try:
        _ = [float(value) for value in values if value not in ("", None)]
    except (TypeError, ValueError):
        return False
    return values.dtype.kind in "UO"
