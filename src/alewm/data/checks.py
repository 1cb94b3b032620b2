"""Validation of data files; each failure names the file, the column and the row.

Columns have checksums, which are compared with the values whenever these are read. Checksums are attributes of the
columns: other tools of the field take every dataset at the root for a column with one row per step, fail at a group,
and do not look at attributes. A program that replaces a column drops its checksums with it; `h5repack` and copies keep
them.

| attribute             | of            | value                                                                       |
|-----------------------|---------------|-----------------------------------------------------------------------------|
| `alewm_crc32`         | a frame column| CRC-32 of each frame as compressed, uint32 [N]; 0 where a row was not drawn  |
| `alewm_crc32`         | other columns | CRC-32 of the values of each 1,000 rows in C order, uint32 [N / 1,000]       |
| `alewm_texts_crc32`   | the file      | CRC-32 of its two texts                                                     |

HDF5 itself protects names, types, shapes, the places of chunks and numeric attributes in the files written here.
"""

import contextlib
import importlib
import json
import shlex
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from alewm.data import schema
from alewm.errors import InputError, install_line
from alewm.files import parse_json

_MOST_COMPRESSION = 1100
"""Largest compression factor of any filter for numbers; DEFLATE reaches 1,032."""

RESTORE = "Restore the file from a copy, or collect or download it again."


def fault(path: Path, column: str, row: int | None, problem: str, remedy: str) -> InputError:
    """The error for a `problem` at a place in a file."""
    place = f"{path}, column {column!r}" + ("" if row is None else f", row {row}")
    return InputError(f"{place}: {problem} {remedy}")


@contextlib.contextmanager
def read_by_hdf5(path: Path) -> Iterator[None]:
    """Turn errors of HDF5 inside the block into an `InputError` that names the file."""
    try:
        yield
    except InputError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{path} is damaged ({first_line(error)}). {RESTORE}") from error


def open_file(path: Path) -> h5py.File:
    """The HDF5 file at `path`, open for reading."""
    if not path.exists():
        raise InputError(f"{path} does not exist. Make it with `alewm collect`, or check the path.")
    if path.is_dir():
        if files := sorted(each for each in path.iterdir() if each.suffix in (".h5", ".hdf5")):
            raise InputError(f"{path} is a folder; one HDF5 file was expected. It holds {', '.join(map(str, files))}.")
        if (path / "config.json").is_file():
            raise InputError(f"{path} is a run folder; a data file was expected, such as `alewm collect` writes.")
        raise InputError(
            f"{path} is a folder; one HDF5 file was expected. Make one of the recordings in it: alewm convert "
            f"{shlex.quote(str(path))} --out FILE.h5"
        )
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty (0 bytes); an HDF5 file was expected. Collect or download it again.")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if "consistency flags" in str(error):
            raise InputError(
                f"{path} is open in the program that writes it, or was when that program was killed. Wait for it to "
                f"end; if it has, and the file is complete, clear the mark: h5clear -s {path}"
            ) from None
        kind = "is damaged or cut short" if h5py.is_hdf5(path) else "is not an HDF5 file"
        raise InputError(f"{path} {kind} ({first_line(error)}). Collect or download it again.") from None


def find_columns(path: Path, file: h5py.File) -> dict[str, h5py.Dataset]:
    """The datasets at the root of the file, with `pixels` and `action` checked to be there and of the right kind."""
    with read_by_hdf5(path):
        items = {name: _item(path, file, name) for name in file}
        columns = {name: item for name, item in items.items() if isinstance(item, h5py.Dataset)}
        for name, column in columns.items():
            _check_storage(path, name, column)
    for name, wanted in ((schema.PIXELS, "uint8 [rows, Y, X, 3]"), (schema.ACTION, "floats [rows, A]")):
        if name not in columns:
            raise fault(path, name, None, f"missing; {wanted} was expected.", f"The file has {', '.join(columns)}.")
    pixels, action = columns[schema.PIXELS], columns[schema.ACTION]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[-1] != 3:
        found = f"{pixels.dtype} {list(pixels.shape or ())}"
        raise fault(
            path, schema.PIXELS, None, f"uint8 [rows, Y, X, 3] was expected, found {found}.", "Convert the file."
        )
    if action.dtype.kind != "f" or action.ndim != 2 or action.shape[1] == 0:
        found = f"{action.dtype} {list(action.shape or ())}"
        raise fault(path, schema.ACTION, None, f"floats [rows, A] were expected, found {found}.", "Convert the file.")
    if len(pixels) == 0:
        raise fault(path, schema.PIXELS, None, "no rows.", "Collect episodes into the file first.")
    return columns


def _item(path: Path, file: h5py.File, name: str) -> Any:
    if isinstance(link := file.get(name, getlink=True), h5py.ExternalLink):
        problem = f"a link into another file, {link.filename!r}, which is not followed."
        raise fault(path, name, None, problem, "Copy what it points to into the file.")
    try:
        return file[name]
    except (OSError, RuntimeError, KeyError) as error:
        # HDF5's listing omits objects that it cannot open, so a damaged column would be missing silently.
        raise fault(path, name, None, f"cannot be opened ({first_line(error)}).", RESTORE) from None


def _check_storage(path: Path, name: str, column: h5py.Dataset) -> None:
    """Refuse a column that reads other files, or declares more than its file can hold, before memory is taken."""
    if column.external is not None or column.is_virtual:
        where = column.external[0][0] if column.external else "a virtual dataset"
        problem = f"its values are stored outside of the file ({where}), which is not followed."
        raise fault(path, name, None, problem, "Copy them into the file.")
    if name != schema.PIXELS and column.nbytes > _MOST_COMPRESSION * path.stat().st_size:
        problem = f"{column.nbytes:,} bytes are declared, in a file of {path.stat().st_size:,}."
        raise fault(path, name, None, problem, RESTORE)


def check_row_counts(path: Path, columns: Mapping[str, h5py.Dataset]) -> None:
    """Refuse a file whose row columns have different lengths."""
    num_rows = len(columns[schema.PIXELS])
    for name, column in columns.items():
        if name in (schema.LENGTH, schema.OFFSET):
            continue
        found = len(column) if column.ndim else 0
        if found != num_rows and (name == schema.ACTION or name in schema.INDEX_COLUMNS or column.ndim):
            row = min(found, num_rows)
            problem = f"ends at {found} rows, but {schema.PIXELS!r} has {num_rows}."
            raise fault(path, name, row, problem, "The file was cut short while it was written; make it again.")


def read_version(path: Path, file: h5py.File) -> int | None:
    """The version of the file's layout; None for files that were made elsewhere."""
    (version,) = _attributes(path, file, schema.VERSION_ATTRIBUTE)
    if version is None:
        return None
    if not isinstance(version, (int, np.integer)) or version < 1:
        raise InputError(f"{path} says it has file version {version!r}, which is no version. {RESTORE}")
    if version > schema.FILE_VERSION:
        raise InputError(
            f"{path} has file version {version}; this alewm reads up to {schema.FILE_VERSION}. Update alewm."
        )
    return int(version)


def read_texts(path: Path, file: h5py.File) -> tuple[dict[str, Any], str | None]:
    """What the collector recorded about the file, and what compressed its frames, where the file says it."""
    names = (schema.ATTRIBUTES_ATTRIBUTE, schema.ENCODER_ATTRIBUTE, schema.TEXTS_CHECKSUM)
    *texts, expected = _attributes(path, file, *names)
    described, encoder = map(_text, texts)
    # An attribute of another shape equals no checksum.
    if expected is not None and (np.ndim(expected) or texts_checksum(described or "", encoder or "") != expected):
        raise InputError(
            f"{path}: the attributes {schema.ATTRIBUTES_ATTRIBUTE!r} and {schema.ENCODER_ATTRIBUTE!r} differ from "
            f"their checksum. {RESTORE} If the change was wanted, delete the attribute {schema.TEXTS_CHECKSUM!r}."
        )
    try:
        attributes = {} if described is None else parse_json(described)
    except ValueError as error:
        raise InputError(
            f"{path}: the attribute {schema.ATTRIBUTES_ATTRIBUTE!r} is not JSON ({first_line(error)}). {RESTORE}"
        ) from None
    if not isinstance(attributes, dict):
        found = type(attributes).__name__
        raise InputError(
            f"{path}: the attribute {schema.ATTRIBUTES_ATTRIBUTE!r} must be a JSON object, found {found}. {RESTORE}"
        )
    return attributes, encoder


TEXT_SECONDS = 30.0
"""Time limit for reading a text of variable length, process start included."""

_PRINT_TEXTS = """
import json, sys
import h5py
values = [h5py.File(sys.argv[1]).attrs[name] for name in sys.argv[2:]]
print(json.dumps([v.decode(errors="surrogateescape") if isinstance(v, bytes) else str(v) for v in values]))
"""


def _attributes(path: Path, file: h5py.File, *names: str) -> list[Any]:
    """The attributes `names` of the file; None for one that it does not have.

    Files of version 1 and 2 have texts of variable length. HDF5 keeps these in a place without checksums, and loops for
    ever in it when it is damaged in some ways. So a process with a time limit reads them.
    """
    with read_by_hdf5(path):
        there = [name for name in names if name in file.attrs]
        unsafe = [name for name in there if file.attrs.get_id(name).dtype.hasobject]
        found = {name: file.attrs[name] for name in there if name not in unsafe}
    if unsafe:
        command = [sys.executable, "-P", "-c", _PRINT_TEXTS, str(path), *unsafe]
        try:
            done = subprocess.run(command, capture_output=True, timeout=TEXT_SECONDS, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            raise InputError(f"{path}: the attribute {unsafe[0]!r} cannot be read. {RESTORE}") from None
        found |= dict(zip(unsafe, json.loads(done.stdout), strict=True))
    return [found.get(name) for name in names]


def _text(value: Any) -> str | None:
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else None if value is None else str(value)


def texts_checksum(attributes: str, encoder: str) -> int:
    """CRC-32 of the file's two texts."""
    return zlib.crc32(f"{attributes}\0{encoder}".encode(errors="surrogateescape"))


def row_without_action(actions: np.ndarray, last_rows: np.ndarray | int = -1) -> int | None:
    """The first row of `actions` `[rows, A]` that is not finite; NaN may stand in the last row of an episode."""
    wrong = ~np.isfinite(actions).all(axis=1)
    wrong[last_rows] = np.isinf(actions[last_rows]).any(axis=-1)
    return int(wrong.argmax()) if wrong.any() else None


def check_actions(path: Path, actions: np.ndarray, last_rows: np.ndarray) -> None:
    """Refuse infinite actions, and NaN anywhere but in the last row of an episode."""
    row = row_without_action(actions, last_rows)
    if row is not None:
        what = "an infinite action" if np.isinf(actions[row]).any() else "a NaN action before the end of its episode"
        raise fault(path, schema.ACTION, row, f"{what}: {actions[row].tolist()}.", "Collect the file again.")


def check_codec(path: Path, name: str, column: h5py.Dataset) -> None:
    """Refuse frames compressed by a filter that is not installed, with the line that installs it."""
    pipeline = column.id.get_create_plist()
    filters = [pipeline.get_filter(i) for i in range(pipeline.get_nfilters())]
    if all(h5py.h5z.filter_avail(code) for code, *_ in filters):
        return
    with contextlib.suppress(ImportError):
        importlib.import_module("hdf5plugin")  # importing it registers its filters
    for code, _, _, label in filters:
        if not h5py.h5z.filter_avail(code):
            called = label.decode(errors="replace") or "unnamed"
            problem = f"compressed with HDF5 filter {code} ({called}), which is not installed."
            raise fault(path, name, None, problem, install_line("lewm-data"))


def first_line(error: BaseException) -> str:
    """The first line of what `error` says, for a message that goes on."""
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__


@dataclass(frozen=True)
class Label:
    """Task, action width and frame skip of a file."""

    task: str | None
    """The task, where the collector recorded it; files from elsewhere do not say."""
    action_dim: int
    """Numbers in one action."""
    frame_skip: int | None
    """Environment steps per latent step that the file was made for, where it says so."""


def read_label(path: Path) -> Label:
    """The label of the file at `path`; one that is no data file is refused."""
    with open_file(path) as file:
        action = find_columns(path, file)[schema.ACTION]
        attributes, _ = read_texts(path, file)
        return Label(attributes.get("task"), int(action.shape[1]), schema.frame_skip_of(path, attributes))


ROWS_PER_CHECKSUM = 1000

_RESTORE_COLUMN = (
    f"{RESTORE} If another program changed the column on purpose, delete its attribute {schema.COLUMN_CHECKSUMS!r}."
)


def checksums_of(values: np.ndarray) -> np.ndarray:
    """CRC-32 of each `ROWS_PER_CHECKSUM` rows of a column, uint32."""
    values = np.ascontiguousarray(values)
    starts = range(0, len(values), ROWS_PER_CHECKSUM)
    return np.array([zlib.crc32(values[i : i + ROWS_PER_CHECKSUM].data) for i in starts], dtype=np.uint32)


class CheckedColumn:
    """One column of a file; values that differ from their checksum are refused with file, column and rows.

    A block of rows is compared once: when any of its rows is read for the first time.
    """

    def __init__(self, path: Path, name: str, dataset: h5py.Dataset) -> None:
        self.dataset = dataset
        self._path = path
        self._name = name
        self._has_rows = bool(dataset.shape)
        self._has_frames = self._has_rows and schema.holds_frames(dataset.dtype, dataset.shape)

    @cached_property
    def checksums(self) -> np.ndarray | None:
        """The stored checksums of this column; None if there are none."""
        if self._has_frames and (self.dataset.chunks is None or self.dataset.chunks[0] != 1):
            return None  # another program stored the frames anew, in longer runs
        if not self._has_rows or schema.COLUMN_CHECKSUMS not in self.dataset.attrs:
            return None
        num_rows = len(self.dataset)
        expected = num_rows if self._has_frames else -(-num_rows // ROWS_PER_CHECKSUM)
        try:
            found = self.dataset.attrs.get_id(schema.COLUMN_CHECKSUMS)
            if found.dtype != np.uint32 or found.shape != (expected,):
                shape = f"{found.dtype}{list(found.shape)}"
                raise self._fault(None, f"{expected} checksums were expected for {num_rows} rows, found {shape}.")
            return np.asarray(self.dataset.attrs[schema.COLUMN_CHECKSUMS])
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            if isinstance(error, InputError):
                raise
            raise self._fault(None, f"its checksums cannot be read ({first_line(error)}).") from None

    def read(self, rows: slice = slice(None)) -> np.ndarray:
        """The values at consecutive `rows`, or all of them."""
        if self.dataset.shape is None:
            raise self._fault(None, "it holds nothing.")
        if self.dataset.dtype.kind not in "biuf":
            # Nothing is computed from texts, and damaged ones can make HDF5 loop for ever.
            raise fault(self._path, self._name, None, f"it holds {self.dataset.dtype}.", "Only numbers are read.")
        if not self._has_rows:
            return self._values(())
        start, stop, _ = rows.indices(len(self.dataset))
        if self.checksums is None:
            return self._values(slice(start, stop))
        if self._has_frames:
            self.check_frames(np.arange(start, stop))
            return self._values(slice(start, stop))
        first, last = start // ROWS_PER_CHECKSUM, -(-stop // ROWS_PER_CHECKSUM)
        if self._is_sound[first:last].all():
            return self._values(slice(start, stop))
        begin = first * ROWS_PER_CHECKSUM
        values = self._values(slice(begin, last * ROWS_PER_CHECKSUM))
        wrong = np.flatnonzero(checksums_of(values) != self.checksums[first:last])
        if len(wrong):
            row = begin + int(wrong[0]) * ROWS_PER_CHECKSUM
            end = min(row + ROWS_PER_CHECKSUM, len(self.dataset)) - 1
            raise self._fault(row, f"what is stored in rows {row} to {end} differs from its checksum.")
        self._is_sound[first:last] = True
        return values[start - begin : stop - begin]

    def check_frames(self, rows: np.ndarray) -> None:
        """Refuse frames at `rows` that differ from what was written; for frame columns with checksums."""
        assert self.checksums is not None
        origin = (0,) * (self.dataset.ndim - 1)
        for row in rows.tolist():
            stored = b""
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # no such chunk: the row was not drawn
                stored = self.dataset.id.read_direct_chunk((row, *origin))[1]
            if zlib.crc32(stored) != self.checksums[row]:
                raise self._fault(row, "the stored frame differs from its checksum.")

    def check(self) -> bool:
        """Whether the column has checksums; if it does, all of it was read and compared."""
        if self.checksums is None:
            return False
        if self._has_frames:
            self.check_frames(np.arange(len(self.dataset)))
            return True
        for block in range(0, len(self.dataset), 100 * ROWS_PER_CHECKSUM):  # in parts, to bound memory
            self.read(slice(block, block + 100 * ROWS_PER_CHECKSUM))
        return True

    @cached_property
    def _is_sound(self) -> np.ndarray:
        assert self.checksums is not None
        return np.zeros(len(self.checksums), dtype=bool)

    def _values(self, rows: slice | tuple[()]) -> np.ndarray:
        try:
            values = np.asarray(self.dataset[rows])
        except (OSError, RuntimeError, ValueError) as error:
            raise self._fault(None, f"cannot be read ({first_line(error)}).") from None
        return values

    def _fault(self, row: int | None, problem: str) -> Exception:
        return fault(self._path, self._name, row, problem, _RESTORE_COLUMN)
