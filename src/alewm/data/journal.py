"""An append-only file of records that survives a kill at any moment, and a power cut but for the last seconds.

A record is its length, its CRC-32 and its bytes. Reading stops at the first record that is incomplete, and the next
append overwrites it. HDF5 offers no such promise, so episodes are written here first; see `StoreWriter`.

A killed process loses no record: the operating system has them. A power cut takes what the system had not put onto the
disk yet. It is told to every `FLUSH_SECONDS`, and what it had not finished is often found as zeros.
"""

import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from alewm.config import differences
from alewm.errors import InputError
from alewm.files import flush_folder, try_lock

FLUSH_SECONDS = 5.0
"""The longest that records wait to be put onto the disk while more are appended."""

_PREFIX_BYTES = 12  # length (8) and CRC-32 (4), little endian


def sealed(record: bytes) -> bytes:
    """`record` behind its length and CRC-32, as the journal holds it."""
    return len(record).to_bytes(8, "little") + zlib.crc32(record).to_bytes(4, "little") + record


def unsealed(record: bytes) -> memoryview:
    """What `sealed` was given, in place; it is not checked."""
    return memoryview(record)[_PREFIX_BYTES:]


class Journal:
    """The records of one unfinished file, the first being a description that must match once others follow."""

    def __init__(self, path: Path, description: Mapping[str, Any]) -> None:
        self.path = path
        first = json.dumps(description).encode()
        self._file: BinaryIO = path.open("a+b")
        if try_lock(self._file.fileno()) is False:
            self._file.close()
            raise InputError(f"Another process is writing {path}; wait for it to end, or write to another path.")
        self._flushed = time.monotonic()
        self._file.seek(0)
        try:
            self._check(sealed(first))
            found = self._next_record()
            if found is None:
                self.append(first)
            elif json.loads(found) != json.loads(first):
                self._refuse_others(json.loads(first), json.loads(found))
                self._file.truncate(0)
                self.append(first)
        except BaseException:
            self._file.close()
            raise

    def _check(self, first: bytes) -> None:
        """Refuses a file that is neither a journal nor the beginning of this one: it may be somebody's own."""
        if not _holds_description(self._file) and not first.startswith(self._file.read().rstrip(b"\0")):
            raise InputError(
                f"{self.path} is in the way: while a file is written, its finished episodes are kept under that name. "
                f"Move it away, or write to another path."
            )
        self._file.seek(0)

    def _refuse_others(self, asked: dict[str, Any], found: dict[str, Any]) -> None:
        if self._next_record() is None:
            return  # nothing was finished, so there is nothing to lose
        lines = "\n  ".join(differences(asked, found))
        raise InputError(
            f"{self.path} holds the beginning of another file:\n  {lines}\n"
            f"Repeat the command that began it, write to another path, or delete {self.path} to start over."
        )

    def replay(self) -> Iterator[bytes]:
        """Every complete record after the description; afterwards, appending continues behind the last of them."""
        while (record := self._next_record()) is not None:
            yield record

    def append(self, record: bytes) -> None:
        """Write `record` behind the last complete one."""
        self.append_sealed(sealed(record))

    def append_sealed(self, record: bytes) -> None:
        """Write a record that `sealed` was given, in another process for instance."""
        self._file.write(record)
        self._file.flush()
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            os.fsync(self._file.fileno())
            flush_folder(self.path.parent)
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Keep the file, let go of it."""
        self._file.close()

    def delete(self) -> None:
        """Remove the file: what it protected is complete."""
        self._file.close()
        self.path.unlink()

    def _next_record(self) -> bytes | None:
        start = self._file.tell()
        record = _read_record(self._file)
        if record is None:
            self._file.seek(start)
            self._file.truncate()
        return record


def remove_finished_journal(path: Path) -> None:
    """Removes the journal that a kill left beside a finished file; what is no journal stays."""
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            is_left = try_lock(file.fileno()) is not False and (_holds_description(file) or not path.stat().st_size)
        if is_left:
            path.unlink()


def _holds_description(file: BinaryIO) -> bool:
    """Whether the file begins with the description of a journal; it is back at its start afterwards."""
    record = _read_record(file)
    file.seek(0)
    return record is not None and record[:1] == b"{"


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
