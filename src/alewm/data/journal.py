"""An append-only file of records that survives a kill at any moment.

A record is its length, its CRC-32 and its bytes. Reading stops at the first record that is incomplete, and the next
append overwrites it. HDF5 offers no such promise, so episodes are written here first; see `StoreWriter`.
"""

import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from alewm.config import differences
from alewm.errors import InputError

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
        description = json.loads(json.dumps(description))
        self._file: BinaryIO = path.open("a+b")
        _lock(self._file, path)
        self._file.seek(0)
        first = self._next_record()
        if first is None:
            self.append(json.dumps(description).encode())
        elif (found := json.loads(first)) != description:
            if self._next_record() is None:  # nothing was finished, so there is nothing to lose
                self._file.truncate(0)
                self.append(json.dumps(description).encode())
                return
            self._file.close()
            lines = "\n  ".join(differences(description, found))
            raise InputError(
                f"{path} holds the beginning of another file:\n  {lines}\n"
                f"Repeat the command that began it, write to another path, or delete {path} to start over."
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
        # Handed to the operating system: a killed process loses nothing that was appended.
        self._file.flush()

    def close(self) -> None:
        """Keep the file, let go of it."""
        self._file.close()

    def delete(self) -> None:
        """Remove the file: what it protected is complete."""
        self._file.close()
        self.path.unlink()

    def _next_record(self) -> bytes | None:
        start = self._file.tell()
        prefix = self._file.read(_PREFIX_BYTES)
        if len(prefix) == _PREFIX_BYTES:
            length = int.from_bytes(prefix[:8], "little")
            # Garbage may claim more bytes than there is memory.
            is_there = length <= os.fstat(self._file.fileno()).st_size - self._file.tell()
            record = self._file.read(length) if is_there else b""
            if is_there and zlib.crc32(record) == int.from_bytes(prefix[8:], "little"):
                return record
        self._file.seek(start)
        self._file.truncate()
        return None


def _lock(file: BinaryIO, path: Path) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go by the system when the process ends, however it ends
    except OSError:
        file.close()
        raise InputError(f"Another process is writing {path}; wait for it to end, or write to another path.") from None
