"""Frames for the loader: compressed in memory, decoded in memory, or through HDF5; and a check of all of them.

`open_frames` picks a source once, and the source says which it is and why (`description`). All sources are safe to read
from several threads and return the same bytes.

`verify_frames` reads every frame once, so that damage is found before a long run meets it. Files written here have
checksums and are checked whenever a loader opens them, at a few microseconds per frame. Files from elsewhere must be
decoded to be checked. That is done once and remembered beside the file.
"""

import mmap
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import h5py
import numpy as np
import torch

from alewm.data import schema
from alewm.data.checks import fault, read_by_hdf5
from alewm.data.codec import BatchDecoder, DamagedError, Decoder, decoder_of
from alewm.data.schema import beside, write_sidecar
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from alewm.files import read_object
from alewm.progress import Progress
from alewm.resize import area_downsample, check_image_size
from alewm.workers import num_available_cores

DECODED_LIMIT_BYTES = 2 * 2**30
"""Downsampled frames are kept decoded if they fit in this; otherwise each is downsampled whenever it is read."""

_ROWS_PER_TASK = 64


@runtime_checkable
class FrameSource(Protocol):
    """Frames by row."""

    shape: tuple[int, int, int]
    """(Y, X, 3) of what `read` returns."""

    description: str
    """How frames are read, and why."""

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write the frames at `rows` `[n]` to `out`, uint8 `[n, Y, X, 3]`."""


class ChunkTable(NamedTuple):
    """Where the frames lie in the file, and how they are decoded."""

    byte_offsets: np.ndarray
    sizes: np.ndarray
    frames_per_chunk: int
    decoder: Decoder


_TABLES: WeakKeyDictionary[EpisodeStore, ChunkTable | str] = WeakKeyDictionary()
"""Cache per open store: locating a million frames takes seconds, and training opens two loaders."""


def chunk_table(pixels: h5py.Dataset) -> ChunkTable | str:
    """The table of a dataset whose chunks are whole frames that can be decoded here; else why there is none."""
    pipeline = pixels.id.get_create_plist()
    decoder = decoder_of([pipeline.get_filter(i)[0] for i in range(pipeline.get_nfilters())])
    if isinstance(decoder, str):
        return decoder
    if pixels.file.userblock_size:
        return "the file begins with a user block"
    if pixels.chunks is None:
        offset = pixels.id.get_offset()
        frame_bytes = int(np.prod(pixels.shape[1:]))
        if offset is None:
            return "not stored in the file itself"
        return ChunkTable(offset + frame_bytes * np.arange(len(pixels)), np.full(len(pixels), frame_bytes), 1, decoder)
    if pixels.chunks[1:] != pixels.shape[1:]:
        return f"chunks of {pixels.chunks} cut through frames"
    per_chunk = pixels.chunks[0]
    table = np.zeros((-(-len(pixels) // per_chunk), 3), dtype=np.int64)

    def note(chunk: h5py.h5d.StoreInfo) -> None:
        table[chunk.chunk_offset[0] // per_chunk] = chunk.byte_offset, chunk.size, chunk.filter_mask

    pixels.id.chunk_iter(note)
    if table[:, 2].any():
        return "some chunks are stored unfiltered"
    return ChunkTable(table[:, 0], table[:, 1], per_chunk, decoder)


class MappedFrames:
    """Frames that stay compressed in memory and are decoded whenever they are read.

    The file is mapped, so its pages are memory that the processes of one machine share; the first pass over it
    (`check`) reads them in. Decoding lets other threads run. Where a chunk holds many frames, only the wanted ones are
    decoded if the decoder can do that (Blosc); otherwise a chunk is decoded once per call for all rows in it.
    """

    def __init__(self, store: EpisodeStore, table: ChunkTable, decoder: Decoder | None = None) -> None:
        self.shape = store.frame_shape
        self._path = store.path
        self._table = table
        self._decoder = decoder or table.decoder
        self._frame_bytes = int(np.prod(self.shape))
        self._checksums = store.frame_checksums() if table.frames_per_chunk == 1 else None
        with store.path.open("rb") as file:
            self._file = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        self._view = self._file.data
        runs = "" if table.frames_per_chunk == 1 else f" in runs of {table.frames_per_chunk}"
        self.description = f"frames{runs} mapped from the file, decoded by {self._decoder.library}"
        if self._decoder.note:
            self.description += f" ({self._decoder.note})"

    @property
    def has_checksums(self) -> bool:
        """Whether `check` can tell a damaged frame without decoding it."""
        return self._checksums is not None

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write the frames at `rows` to `out`, which must be contiguous."""
        if not out.flags.c_contiguous:
            raise ValueError(f"Frames are read into contiguous memory only, not into strides of {out.strides}.")
        flat = out.reshape(len(rows), self._frame_bytes)
        per_chunk = self._table.frames_per_chunk
        if per_chunk == 1 and isinstance(self._decoder, BatchDecoder):
            self._decode_together(self._decoder, rows, flat)
            return
        if per_chunk == 1 or self._decoder.decodes_parts:
            for i, row in enumerate(rows.tolist()):
                chunk, slot = divmod(row, per_chunk)
                self._decode(chunk, row, slot * self._frame_bytes, flat[i])
            return
        run = np.empty(per_chunk * self._frame_bytes, dtype=np.uint8)
        frames = run.reshape(per_chunk, self._frame_bytes)
        decoded = -1
        for i in np.argsort(rows, kind="stable").tolist():
            chunk, slot = divmod(int(rows[i]), per_chunk)
            if chunk != decoded:
                self._decode(chunk, int(rows[i]), 0, run)
                decoded = chunk
            flat[i] = frames[slot]

    def check(self, rows: np.ndarray) -> None:
        """Refuse frames at `rows` that differ from what was written, for files that have checksums."""
        if self._checksums is None:
            return
        starts = self._table.byte_offsets[rows].tolist()
        sizes = self._table.sizes[rows].tolist()
        for row, start, size, expected in zip(rows, starts, sizes, self._checksums[rows].tolist(), strict=True):
            if zlib.crc32(self._view[start : start + size]) != expected:
                raise self._fault(int(row), "the stored frame differs from its checksum")

    def _decode_together(self, decoder: BatchDecoder, rows: np.ndarray, flat: np.ndarray) -> None:
        offsets, sizes = self._table.byte_offsets[rows], self._table.sizes[rows]
        try:
            # Frames with checksums of their own were compared with them when the file was opened.
            decoder.decode_many(self._file, offsets, sizes, flat, verify=self._checksums is None)
        except DamagedError as error:
            raise self._undecodable(int(rows[error.index]), error) from None

    def _decode(self, chunk: int, row: int, start: int, out: np.ndarray) -> None:
        offset = int(self._table.byte_offsets[chunk])
        stored = self._view[offset : offset + int(self._table.sizes[chunk])]
        try:
            self._decoder.decode(stored, self._table.frames_per_chunk * self._frame_bytes, start, out)
        except DamagedError as error:
            raise self._undecodable(row, error) from None

    def _undecodable(self, row: int, error: DamagedError) -> Exception:
        return self._fault(row, f"the frame cannot be decoded ({error})")

    def _fault(self, row: int, problem: str) -> Exception:
        return fault(self._path, schema.PIXELS, row, problem + ".", "Collect or download the file again.")


class PlainFrames:
    """Frames read through HDF5, one thread at a time: for filters only HDF5 knows."""

    def __init__(self, store: EpisodeStore, reason: str) -> None:
        self.shape = store.frame_shape
        self.description = (
            f"frames read through HDF5, one thread at a time ({reason}); a copy in our layout is faster (docs/data.md)"
        )
        self._store = store
        self._lock = Lock()

    def check(self, rows: np.ndarray) -> None:
        """Nothing: the store compares frames with their checksums whenever it reads them."""

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write the frames at `rows` to `out`."""
        with self._lock:
            out[:] = self._store.frames(rows)


class DownsampledFrames:
    """Frames of another source at a smaller size, computed whenever they are read."""

    def __init__(self, source: FrameSource, image_size: int) -> None:
        check_image_size(image_size, *source.shape[:2])
        self.shape = (image_size, image_size, 3)
        self.description = f"{source.description}, downsampled to {image_size} x {image_size} at each read"
        self._source = source

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write the frames at `rows` to `out`."""
        full = np.empty((len(rows), *self._source.shape), dtype=np.uint8)
        self._source.read(rows, full)
        out[:] = area_downsample(torch.from_numpy(full), self.shape[0]).numpy()


class DecodedFrames:
    """Frames of another source, decoded once and kept."""

    def __init__(self, source: FrameSource, rows: np.ndarray, num_threads: int) -> None:
        self.shape = source.shape
        self.description = f"{source.description}: once, then kept decoded in memory"
        self._frames = np.empty((len(rows), *source.shape), dtype=np.uint8)
        self._slot_of_row = np.full(int(rows.max()) + 1, -1, dtype=np.int64)
        self._slot_of_row[rows] = np.arange(len(rows))
        with ThreadPoolExecutor(num_threads) as pool:
            tasks = [
                pool.submit(source.read, rows[i : i + _ROWS_PER_TASK], self._frames[i : i + _ROWS_PER_TASK])
                for i in range(0, len(rows), _ROWS_PER_TASK)
            ]
            for task in tasks:
                task.result()

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write the frames at `rows` to `out`."""
        np.take(self._frames, self._slot_of_row[rows], axis=0, out=out)


def stored_frames(store: EpisodeStore) -> MappedFrames | PlainFrames:
    """All frames at their stored size; `check` those that are to be read."""
    if store not in _TABLES:
        with read_by_hdf5(store.path):
            _TABLES[store] = chunk_table(store.pixels)
    table = _TABLES[store]
    return PlainFrames(store, table) if isinstance(table, str) else MappedFrames(store, table)


def open_frames(
    store: EpisodeStore,
    episodes: Sequence[int],
    *,
    image_size: int | None = None,
    num_threads: int = 1,
) -> FrameSource:
    """The fastest source of the frames of `episodes` that fits in memory.

    Frames at their stored size stay compressed. Frames asked for at a smaller `image_size` are decoded once and kept
    if they fit in `DECODED_LIMIT_BYTES`, and otherwise decoded and downsampled at each read.
    """
    rows, source = store.drawn_rows(episodes), stored_frames(store)
    for part in np.array_split(rows, -(-len(rows) // 4096)):
        source.check(part)
    if image_size is None or (image_size, image_size) == store.frame_shape[:2]:
        return source
    small = DownsampledFrames(source, image_size)
    if len(rows) * int(np.prod(small.shape)) > DECODED_LIMIT_BYTES:
        return small
    return DecodedFrames(small, rows, num_threads)


def verify_columns(store: EpisodeStore) -> tuple[str, ...]:
    """The columns whose values were all compared with checksums now; damage is refused with file, column and rows.

    Frames of `pixels` are left to `verify_frames`, which reads them faster.
    """
    return tuple(name for name in store.stored_names if name != schema.PIXELS and store.check_column(name))


def verify_frames(store: EpisodeStore, *, decode: bool = True) -> bool:
    """Whether frames were read now (False: this very file was found sound before, or must be decoded and may not).

    A frame that differs from its checksum or cannot be decoded is refused with the file, the column and the row.
    Without `decode` only frames with checksums are checked. Decoding them all may take minutes, and shows a bar.
    """
    source = open_frames(store, range(store.num_episodes))  # which compares frames with their checksums
    if isinstance(source, MappedFrames) and source.has_checksums:
        return True
    if not decode:
        return False
    path = beside(store.path, "verified")
    status = store.path.stat()
    stamp = {"size": status.st_size, "modified_ns": status.st_mtime_ns, "fingerprint": store.fingerprint}
    if _holds(path, stamp):
        return False
    _decode_all(store, source)
    try:
        write_sidecar(path, stamp)
    except OSError:
        store.notes.append(f"{path} cannot be written: the frames of {store.path} will be checked again next time.")
    return True


def _decode_all(store: EpisodeStore, source: FrameSource) -> None:
    drawn = store.drawn_rows()

    def read(start: int) -> int:
        rows = drawn[start : start + _ROWS_PER_TASK]
        source.read(rows, np.empty((len(rows), *source.shape), dtype=np.uint8))
        return len(rows)

    with (
        Progress(f"checking {store.path}", len(drawn), "frames") as bar,
        ThreadPoolExecutor(num_available_cores()) as threads,
    ):
        for num_read in threads.map(read, range(0, len(drawn), _ROWS_PER_TASK)):
            bar.advance(num_read)


def _holds(path: Path, stamp: dict[str, Any]) -> bool:
    try:
        return read_object(path) == stamp
    except (FileNotFoundError, InputError):
        return False
