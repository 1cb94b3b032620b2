"""Checksums of a file's columns, compared with the values whenever these are read.

They are attributes of the columns. Readers of the field take every dataset at the root for a column with one row per
step and fail at a group, but none of them looks at attributes. A program that replaces a column drops its checksums
with it, and `h5repack` or a copy keeps them.

| attribute             | of            | value                                                                       |
|-----------------------|---------------|-----------------------------------------------------------------------------|
| `alewm_crc32`         | a frame column| CRC-32 of each frame as compressed, uint32 [N]; 0 where a row was not drawn  |
| `alewm_crc32`         | other columns | CRC-32 of the values of each 1,000 rows in C order, uint32 [N / 1,000]       |
| `alewm_texts_crc32`   | the file      | CRC-32 of its two texts                                                     |

HDF5 itself protects names, types, shapes, the places of chunks and numeric attributes in the files written here.
"""

import contextlib
import zlib
from functools import cached_property
from pathlib import Path

import h5py
import numpy as np

from alewm.data import schema
from alewm.data.checks import fault, first_line

ATTRIBUTE = "alewm_crc32"
ROWS_PER_CHECKSUM = 1000

_REMEDY = (
    "Restore the file from a copy, or collect or download it again. If another program changed the column on purpose, "
    f"delete its attribute {ATTRIBUTE!r}."
)


def of_values(values: np.ndarray) -> np.ndarray:
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
        """What the file says of this column; None where it says nothing."""
        if self._has_frames and (self.dataset.chunks is None or self.dataset.chunks[0] != 1):
            return None  # another program stored the frames anew, in longer runs
        if not self._has_rows or ATTRIBUTE not in self.dataset.attrs:
            return None
        try:
            found = np.asarray(self.dataset.attrs[ATTRIBUTE])
        except (OSError, TypeError, ValueError) as error:
            raise self._fault(None, f"its checksums cannot be read ({first_line(error)}).") from None
        num_rows = len(self.dataset)
        expected = num_rows if self._has_frames else -(-num_rows // ROWS_PER_CHECKSUM)
        if found.dtype != np.uint32 or found.shape != (expected,):
            problem = f"{expected} checksums were expected for {num_rows} rows, found {found.dtype}{list(found.shape)}."
            raise self._fault(None, problem)
        return found

    def read(self, rows: slice = slice(None)) -> np.ndarray:
        """The values at consecutive `rows`, or all of them."""
        if self.dataset.shape is None:
            raise self._fault(None, "it holds nothing.")
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
        wrong = np.flatnonzero(of_values(values) != self.checksums[first:last])
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
        for block in range(0, len(self.dataset), 100 * ROWS_PER_CHECKSUM):  # not all of it in memory at once
            self.read(slice(block, block + 100 * ROWS_PER_CHECKSUM))
        return True

    @cached_property
    def _is_sound(self) -> np.ndarray:
        assert self.checksums is not None
        return np.zeros(len(self.checksums), dtype=bool)

    def _values(self, rows: slice | tuple[()]) -> np.ndarray:
        try:
            values: np.ndarray = self.dataset[rows]
        except (OSError, RuntimeError, ValueError) as error:
            raise self._fault(None, f"cannot be read ({first_line(error)}).") from None
        return values

    def _fault(self, row: int | None, problem: str) -> Exception:
        return fault(self._path, self._name, row, problem, _REMEDY)
