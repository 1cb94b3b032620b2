"""One publication: a gzip file of JSON lines that is written once and never changed.

Every line says of which `table` and of which `run` it is. In these tables a line is a row:

    run           configuration, provenance and the end of training
    evaluation    the result with one choice of settings; the default settings have the empty name
    measurement   what an experiment measured on the model
    study         an oscillator study: settings, provenance, its table
    oscillator    one model of a study

In the others, which are long, a line holds many rows as columns; a value that is not a list is that of every row:

    latent        variance of each latent coordinate at the end
    metric        losses and q per capacity while training, a line per kind of metrics
    episode       evaluated pairs, a line per evaluation

Rows belong to parts: a run as it was trained, an evaluation with its episodes, a measurement, a study. A part is
published once. The files of a group together hold what was published there, in whatever order they are read.
"""

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from alewm.errors import InputError
from alewm.files import write_bytes
from alewm.runs.folder import is_number

SUFFIX = ".jsonl.gz"
"""How the name of a publication ends."""
COMPRESSION_LEVEL = 9
"""Fixed, so that the same rows make the same file."""
SIGNIFICANT_DIGITS = 5
"""Of floats that are measured many times: metrics, latents, episodes."""

_PART_OF_TABLE = {
    "run": "run",
    "evaluation": "evaluation",
    "measurement": "measurement",
    "study": "study",
    "oscillator": "study",
    "latent": "run",
    "metric": "run",
    "episode": "evaluation",
}
"""The tables in the order of a file: like lines compress best beside each other."""
_IN_COLUMNS = frozenset({"latent", "metric", "episode"})
_NAMED_BY = {"evaluation": "settings", "measurement": "measurement"}
"""The column that tells the parts of one kind and run from each other."""
STAMP = frozenset({"table", "run", "settings", "measurement", "seed", "commit"})
"""Columns that say of a row whose it is."""
_WRITTEN_ONCE = STAMP | {"kind", "planning_seed"}
"""Columns that have one value in a line of many rows."""

Row = dict[str, Any]


class Part(NamedTuple):
    """What is published as a whole."""

    run: str
    kind: str
    name: str = ""

    def __str__(self) -> str:
        """For messages."""
        return f"{self.kind} {self.name!r} of {self.run}" if self.name else f"{self.kind} of {self.run}"


class PublishedPart(NamedTuple):
    """The rows of a part and the file they are in."""

    path: Path
    rows: list[Row]

    def of(self, table: str) -> list[Row]:
        """Its rows of one table."""
        return [row for row in self.rows if row["table"] == table]

    def numbers(self, table: str, needed: Sequence[str]) -> list[Row]:
        """Its rows of one table, each checked to have finite numbers in the columns `needed`."""
        rows = self.of(table)
        for number, row in enumerate(rows, 1):
            if missing := [name for name in needed if not is_number(row.get(name))]:
                raise InputError(
                    f"{self.path}, {row['run']}: row {number} of its {table} table has no number for "
                    f"{' and '.join(missing)}. Publish the run again."
                )
        return rows


def part_of(row: Mapping[str, Any]) -> Part:
    """The part that `row` belongs to."""
    kind = _PART_OF_TABLE[row["table"]]
    return Part(row["run"], kind, row[_NAMED_BY[kind]] if kind in _NAMED_BY else "")


def rounded(row: Mapping[str, Any]) -> Row:
    """The row with its floats to five significant digits."""
    digits = SIGNIFICANT_DIGITS
    return {name: float(f"{v:.{digits}g}") if isinstance(v, float) else v for name, v in row.items()}


def publication_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """The lines of a publication, before compression."""
    lines: dict[Any, list[Mapping[str, Any]]] = {}
    for number, row in enumerate(rows):
        in_columns = row["table"] in _IN_COLUMNS
        key = json.dumps([row.get(name) for name in sorted(_WRITTEN_ONCE)]) if in_columns else number
        lines.setdefault(key, []).append(row)
    tables = list(_PART_OF_TABLE)
    ordered = sorted(lines.values(), key=lambda line: tables.index(line[0]["table"]))
    packed = (_columns(line) if line[0]["table"] in _IN_COLUMNS else line[0] for line in ordered)
    as_json = (json.dumps(each, allow_nan=False, ensure_ascii=False, separators=(",", ":")) for each in packed)
    return "".join(f"{line}\n" for line in as_json)


def publication_rows(text: str, path: Path) -> list[Row]:
    """The rows of a publication's text, whose file `path` is named in messages."""
    lines = text.removesuffix("\n").split("\n")
    return [row for number, line in enumerate(lines, 1) for row in _rows(f"{path}, line {number}", line)]


def publication_name(text: str, date: str) -> str:
    """The date and a digest of the content: publications made apart never take each other's name."""
    return f"{date}-{hashlib.sha256(text.encode()).hexdigest()[:8]}{SUFFIX}"


def write_publication(path: Path, text: str) -> None:
    """Writes a publication. The same text makes the same bytes: the header has no time and no file name."""
    buffer = io.BytesIO()
    with gzip.GzipFile("", "wb", COMPRESSION_LEVEL, buffer, mtime=0) as file:
        file.write(text.encode())
    write_bytes(path, buffer.getvalue())


def read_publication(path: Path) -> list[Row]:
    """The rows of a publication; a damaged one is refused with the line."""
    try:
        text = gzip.decompress(path.read_bytes()).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a publication: {error}. Restore it, or publish its runs again.") from error
    return publication_rows(text, path)


def read_group(folder: Path) -> dict[Part, PublishedPart]:
    """Everything that the publications directly in `folder` hold; a part that two of them have is refused."""
    found: dict[Part, PublishedPart] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        for row in read_publication(path):
            part = part_of(row)
            published = found.setdefault(part, PublishedPart(path, []))
            if published.path != path:
                raise InputError(f"The {part} is published twice: in {published.path} and {path}. Remove one file.")
            published.rows.append(row)
    return found


def _columns(rows: Sequence[Mapping[str, Any]]) -> Row:
    """Rows of one table and owner as one line; what a row lacks is null."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: rows[0][name] if name in _WRITTEN_ONCE else [row.get(name) for row in rows] for name in names}


def _rows(place: str, line: str) -> Iterator[Row]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise InputError(f"{place}, is not JSON: {error}") from error
    is_line = isinstance(found, dict) and found.get("table") in _PART_OF_TABLE and isinstance(found.get("run"), str)
    named_by = _NAMED_BY.get(_PART_OF_TABLE[found["table"]]) if is_line else None
    if not is_line or (named_by and not isinstance(found.get(named_by), str)):
        raise InputError(
            f"{place}: expected a `table` ({', '.join(_PART_OF_TABLE)}), its `run` and, of an evaluation or a "
            f"measurement, its name; found {line[:80]}"
        )
    if found["table"] not in _IN_COLUMNS:
        yield found
        return
    same = {name: value for name, value in found.items() if not isinstance(value, list)}
    columns = {name: value for name, value in found.items() if isinstance(value, list)}
    if len(lengths := {len(column) for column in columns.values()}) > 1:
        raise InputError(f"{place}: columns of one length were expected, found {sorted(lengths)}.")
    for values in zip(*columns.values(), strict=True):
        yield same | {name: value for name, value in zip(columns, values, strict=True) if value is not None}
