"""Finished episodes of an unfinished file: one record each, in a file that survives a kill and a power cut.

An episode is checked, its frames are compressed, and it becomes one record that describes itself. Records travel from
the processes that make them to the one that writes. There the frames go into the file, and the journal keeps the rest
of the record and where each frame is; see `StoreWriter`.

The journal is only appended to: each record has its length, its CRC-32 and its bytes. Reading stops at the first record
that is incomplete, and the next append overwrites it. A killed process loses no record: the operating system has them.
A power cut takes what the system had not put onto the disk yet, which is often found as zeros. Records say how many
episodes were on the disk before them, so that damage to these is told from a power cut.
"""

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from alewm.config import differences
from alewm.data import schema
from alewm.data.checks import row_without_action
from alewm.data.codec import Compression
from alewm.errors import InputError
from alewm.files import flush_in_place, open_unlinked, try_lock

ColumnLayout = tuple[str, tuple[int, ...]]
"""What must be equal in all episodes of a file: a column's dtype and the shape of one row."""


@dataclass(frozen=True)
class EncodedFrames:
    """A column of images, one compressed stream per row that was drawn."""

    shape: tuple[int, ...]
    """(Y, X, 3) of one frame."""

    data: bytes | memoryview
    """The streams, one after the other."""

    sizes: np.ndarray
    """Bytes of each stream, int64 [rows]; 0 where a row was not drawn."""

    checksums: np.ndarray
    """CRC-32 of each stream, uint32 [rows]; 0 where a row was not drawn."""

    @property
    def num_drawn(self) -> int:
        """Rows that have a frame."""
        return int(np.count_nonzero(self.sizes))

    def streams(self) -> Iterator[memoryview]:
        """Each stream, without a copy."""
        return _cut(self.data, self.sizes)


def _cut(data: bytes | memoryview, sizes: np.ndarray) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[start:end] for start, end in pairwise(accumulate(sizes.tolist(), initial=0)))


@dataclass(frozen=True)
class EncodedEpisode:
    """An episode as it is stored: frame columns compressed, the others as arrays."""

    columns: dict[str, np.ndarray]
    frames: dict[str, EncodedFrames]

    @property
    def num_rows(self) -> int:
        """Rows of the episode."""
        return len(self.columns[schema.ACTION])

    @property
    def num_frames(self) -> int:
        """Rows that were drawn."""
        return self.frames[schema.PIXELS].num_drawn

    def layout(self) -> dict[str, ColumnLayout]:
        """dtype and row shape of every column."""
        columns = {name: (values.dtype.str, values.shape[1:]) for name, values in self.columns.items()}
        return columns | {name: ("|u1", frames.shape) for name, frames in self.frames.items()}


def encode_episode(episode: Mapping[str, np.ndarray], compression: Compression, draw_every: int) -> EncodedEpisode:
    """`episode` checked and with its frames compressed; index columns are dropped, the writer makes them.

    Its frames are those of every `draw_every`-th row, the first row's before all.
    """
    columns: dict[str, np.ndarray] = {}
    frames: dict[str, EncodedFrames] = {}
    for given_name, given in episode.items():
        name, values = schema.sanitised(given_name), np.asarray(given)
        if schema.is_derived(name, episode):
            continue
        if name in ("", "."):
            raise InputError(f"A column of the episode is named {given_name!r}, which no file can hold; rename it.")
        if name in columns or name in frames:
            raise InputError(f"Two columns of the episode would both be stored as {name!r}; rename one of them.")
        if schema.holds_frames(values.dtype, values.shape):
            data, sizes = compression.compress_frames(values)
            checksums = np.array([zlib.crc32(stream) for stream in _cut(data, sizes)], dtype=np.uint32)
            frames[name] = EncodedFrames(values.shape[1:], data, sizes, checksums)
        else:
            columns[name] = np.ascontiguousarray(values)
    _check(columns, frames, draw_every)
    drawn = np.arange(len(columns[schema.ACTION])) % draw_every == 0
    return EncodedEpisode(columns, {name: _at_rows(drawn, images) for name, images in frames.items()})


def _at_rows(drawn: np.ndarray, frames: EncodedFrames) -> EncodedFrames:
    """`frames` as the rows that are `drawn`, among rows that are not."""
    sizes, checksums = np.zeros(len(drawn), frames.sizes.dtype), np.zeros(len(drawn), frames.checksums.dtype)
    sizes[drawn], checksums[drawn] = frames.sizes, frames.checksums
    return replace(frames, sizes=sizes, checksums=checksums)


def _check(columns: Mapping[str, np.ndarray], frames: Mapping[str, EncodedFrames], draw_every: int) -> None:
    if schema.PIXELS not in frames:
        raise InputError(
            f"An episode needs a column {schema.PIXELS!r} of uint8 frames [rows, Y, X, 3]; it has "
            f"{_described(columns, frames)}."
        )
    action = columns.get(schema.ACTION)
    if action is None or action.ndim != 2 or not np.issubdtype(action.dtype, np.floating):
        raise InputError(
            f"An episode needs a column {schema.ACTION!r} of floats [rows, A]; it has {_described(columns, frames)}."
        )
    num_rows = len(action)
    if num_rows == 0:
        raise InputError("An episode needs at least one row; this one is empty.")
    for name, values in columns.items():
        if values.dtype.kind not in "biuf":
            raise InputError(f"Column {name!r} holds {values.dtype}; only numbers and booleans can be stored.")
        if values.ndim == 0 or len(values) != num_rows:
            raise InputError(
                f"Column {name!r} has shape {values.shape}; {num_rows} rows were expected, as in 'action'."
            )
        _check_holds_something(name, values.shape[1:])
    _check_actions(action)
    num_drawn = len(range(0, num_rows, draw_every))
    expected = f"{num_drawn} were expected, as in 'action'."
    if draw_every > 1:
        expected = f"{num_drawn} were expected, one for every {draw_every} of the {num_rows} rows."
    for name, images in frames.items():
        if len(images.sizes) != num_drawn:
            raise InputError(f"Column {name!r} has {len(images.sizes)} rows; {expected}")
        _check_holds_something(name, images.shape)


def _check_holds_something(name: str, row_shape: tuple[int, ...]) -> None:
    if 0 in row_shape:
        raise InputError(f"Column {name!r} has rows of shape {row_shape}, which hold nothing; leave it out or fill it.")


def _check_actions(action: np.ndarray) -> None:
    """Refuse here what a reader would refuse once the whole file is written."""
    row = row_without_action(action)
    if row is not None:
        raise InputError(
            f"Column {schema.ACTION!r}, row {row} of {len(action)}: the action is {action[row].tolist()}; finite "
            f"numbers were expected, and NaN in the last row only. Repair the episode or leave it out."
        )


def _described(columns: Mapping[str, np.ndarray], frames: Mapping[str, EncodedFrames]) -> str:
    parts = [f"{name} {values.dtype}{list(values.shape)}" for name, values in columns.items()]
    parts += [f"{name} uint8{[len(images.sizes), *images.shape]}" for name, images in frames.items()]
    return ", ".join(parts) or "no column"


RECORD_VERSION = 3
"""Raised whenever a journal holds what an older version misreads."""

Places = Mapping[str, np.ndarray]
"""Where the streams of each frame column begin in the file, int64 [rows]; 0 where a row was not drawn."""


def to_bytes(episode: EncodedEpisode, places: Places | None = None, num_flushed: int = 0) -> bytes:
    """`episode` as one record: the length of a JSON header, the header, then the data it describes.

    With `places`, these stand where the frames would; `num_flushed` episodes were on the disk by then.
    """
    header: dict[str, Any] = {
        "columns": [[name, values.dtype.str, list(values.shape)] for name, values in episode.columns.items()],
        "frames": [[name, list(f.shape), len(f.sizes)] for name, f in episode.frames.items()],
        "num_flushed": num_flushed,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    parts: list[bytes | memoryview] = [len(text).to_bytes(4, "little"), text]
    parts += [values.tobytes() for values in episode.columns.values()]
    for name, frames in episode.frames.items():
        parts += [frames.sizes.astype("<i8").tobytes(), frames.checksums.astype("<u4").tobytes()]
        parts.append(frames.data if places is None else places[name].astype("<i8").tobytes())
    return b"".join(parts)


def from_bytes(record: bytes) -> EncodedEpisode:
    """The episode that `to_bytes` wrote; its frames stay in `record`."""
    return _read(record, has_frames=True)[0]


def without_frames(record: bytes) -> tuple[EncodedEpisode, Places]:
    """The episode that `to_bytes` wrote with places, its frames empty, and the places."""
    return _read(record, has_frames=False)


def num_flushed_in(record: bytes) -> int:
    """The episodes that were on the disk, with their frames, before this one was appended."""
    return int(_header(record).get("num_flushed", 0))


def _header(record: bytes) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(record[4 : 4 + int.from_bytes(record[:4], "little")]))


def _read(record: bytes, *, has_frames: bool) -> tuple[EncodedEpisode, Places]:
    view, header = memoryview(record), _header(record)
    position = 4 + int.from_bytes(view[:4], "little")

    def take(dtype: str, shape: Sequence[int]) -> np.ndarray:
        nonlocal position
        # A copy, because a view would keep the whole record, frames included, alive.
        values = np.frombuffer(view, dtype, int(np.prod(shape)), position).reshape(shape).copy()
        position += values.nbytes
        return values

    columns = {name: take(dtype, shape) for name, dtype, shape in header["columns"]}
    frames, places = {}, {}
    for name, shape, count in header["frames"]:
        sizes, checksums = take("<i8", [count]), take("<u4", [count])
        if has_frames:
            end = position + int(sizes.sum())
            frames[name] = EncodedFrames(tuple(shape), view[position:end], sizes, checksums)
            position = end
        else:
            frames[name] = EncodedFrames(tuple(shape), b"", sizes, checksums)
            places[name] = take("<i8", [count])
    return EncodedEpisode(columns, frames), places


_PREFIX_BYTES = 12  # length (8) and CRC-32 (4), little endian
_RECORD_BEGINS = b'{"columns":'
_RECORD_BEGINS_AT = _PREFIX_BYTES + 4  # behind the length of the header


def _sealed(record: bytes) -> bytes:
    """`record` behind its length and CRC-32."""
    return len(record).to_bytes(8, "little") + zlib.crc32(record).to_bytes(4, "little") + record


class Journal:
    """The records of one unfinished file, the first being a description that must match once others follow."""

    def __init__(self, path: Path, description: Mapping[str, Any]) -> None:
        self.path = path
        first = json.dumps(description).encode()
        self._file: BinaryIO = open(path, "a+b", opener=open_unlinked)  # noqa: SIM115 (closed by `close`)
        if try_lock(self._file.fileno()) is False:
            self._file.close()
            raise InputError(f"Another process is writing {path}; wait for it to end, or write to another path.")
        try:
            found, asked = _description(self._file), json.loads(first)
            if found is None:
                self._check_ours(_sealed(first))
            elif found != asked:
                self._refuse_others(asked, found)
            if found != asked:
                self._file.truncate(0)
                self.append(first)
        except BaseException:
            self._file.close()
            raise
        self._ends = [self._file.tell()]

    def _check_ours(self, first: bytes) -> None:
        """Refuse what is not the beginning of a journal: it may belong to the user."""
        self._file.seek(0)
        if not first.startswith(self._file.read().rstrip(b"\0")):
            raise InputError(
                f"{self.path} is in the way: while a file is written, its finished episodes are kept under that name. "
                f"Move it away, or write to another path."
            )

    def _refuse_others(self, asked: dict[str, Any], found: dict[str, Any]) -> None:
        end = self._file.tell()
        if _read_record(self._file) is None and next(self._found_behind(end), None) is None:
            return  # nothing was finished, so there is nothing to lose
        if asked.get("record_version") != (version := found.get("record_version")):
            raise InputError(
                f"{self.path} was begun by another version of alewm: its episodes are of version {version}, "
                f"{asked.get('record_version')} was expected. Finish the file with that version, write to another "
                f"path, or delete {self.path} and the .partial file beside it to start over."
            )
        lines = "\n  ".join(differences(asked, found))
        raise InputError(
            f"{self.path} holds the beginning of another file:\n  {lines}\n"
            f"Repeat the command that began it, write to another path, or delete {self.path} and the .partial file "
            f"beside it to start over."
        )

    def replay(self) -> Iterator[bytes]:
        """The records behind the description, up to the first that is incomplete; afterwards `keep` some of them."""
        while (record := _read_record(self._file)) is not None:
            self._ends.append(self._file.tell())
            yield record

    def keep(self, number: int) -> None:
        """Append behind the first `number` records from now on; the others must be what a power cut can take."""
        end = self._ends[number]
        num_flushed = max((num_flushed_in(record) for record in self._found_behind(end)), default=0)
        if number < num_flushed:
            raise InputError(
                f"{self.path} and the .partial file beside it do not have the whole of episode {number}, though "
                f"{num_flushed} episodes were on the disk: they are damaged, or of two recordings. Put back those that "
                f"belong together. If there are none, shorten the journal to {end} bytes to write the episodes from "
                f"{number} on again, or delete both files to start over."
            )
        self._file.seek(end)
        self._file.truncate()

    def _found_behind(self, end: int) -> Iterator[bytes]:
        """Every whole record behind `end`, whatever is between them: they are found by how they begin."""
        self._file.seek(end)
        content, at = self._file.read(), 0
        while (at := content.find(_RECORD_BEGINS, at + 1)) >= 0:
            self._file.seek(end + at - _RECORD_BEGINS_AT)
            if (record := _read_record(self._file)) is not None:
                yield record

    def append(self, record: bytes) -> None:
        """Write `record` behind the last one."""
        self._file.write(_sealed(record))
        self._file.flush()

    def flush(self) -> None:
        """Put all records onto the disk."""
        flush_in_place(self.path, self._file.fileno())

    def close(self) -> None:
        """Close the file without removing it."""
        self._file.close()

    def delete(self) -> None:
        """Remove the file: what it protected is complete."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def described_in(path: Path) -> dict[str, Any] | None:
    """The description that the journal at `path` begins with, or None where no journal is."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return _description(file)


def remove_finished_journal(path: Path) -> None:
    """Removes the journal that a kill left beside a finished file; what is no journal stays."""
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            is_left = try_lock(file.fileno()) is not False and (_description(file) or not path.stat().st_size)
        if is_left:
            path.unlink()


def _description(file: BinaryIO) -> dict[str, Any] | None:
    """What a journal begins with; the file stands behind it afterwards. None where it is no journal."""
    file.seek(0)
    record = _read_record(file)
    return cast("dict[str, Any]", json.loads(record)) if record is not None and record[:1] == b"{" else None


def _read_record(file: BinaryIO) -> bytes | None:
    """The record at the file's position, or None where it is incomplete."""
    prefix = file.read(_PREFIX_BYTES)
    if len(prefix) < _PREFIX_BYTES:
        return None
    length = int.from_bytes(prefix[:8], "little")
    # Garbage may claim more bytes than there is memory.
    is_there = length <= os.fstat(file.fileno()).st_size - file.tell()
    record = file.read(length) if is_there else b""
    # No record is empty, but a power cut may leave zeros, and the CRC-32 of nothing is zero.
    return record if record and zlib.crc32(record) == int.from_bytes(prefix[8:], "little") else None
