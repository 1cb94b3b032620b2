"""Where the loader gets frames from: compressed in memory, decoded in memory, or through HDF5.

`open_frames` picks once and the source says which it is and why (`description`). All sources are safe to read from
several threads and return the same bytes.
"""

import mmap
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple, Protocol, runtime_checkable

import h5py
import numpy as np
import torch

from alewm.data import schema
from alewm.data.checks import fault
from alewm.data.inflaters import DamagedStreamError, Inflater, fastest_inflater
from alewm.data.resize import area_downsample, check_image_size
from alewm.data.store import EpisodeStore

DECODED_LIMIT_BYTES = 2 * 2**30
"""Downsampled frames are kept decoded if they fit in this; otherwise each is downsampled whenever it is read."""

_ROWS_PER_TASK = 64


@runtime_checkable
class FrameSource(Protocol):
    """Frames by row."""

    shape: tuple[int, int, int]
    """(Y, X, 3) of what `read` returns."""

    description: str
    """How frames are read and why so."""

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write the frames at `rows` `[n]` to `out`, uint8 `[n, Y, X, 3]`."""


class ChunkTable(NamedTuple):
    """Where the frames lie in the file."""

    byte_offsets: np.ndarray
    sizes: np.ndarray
    frames_per_chunk: int
    is_deflated: bool


def chunk_table(pixels: h5py.Dataset) -> ChunkTable | str:
    """The table of a dataset whose chunks are whole frames, raw or deflated; else the reason why there is none."""
    pipeline = pixels.id.get_create_plist()
    codes = [pipeline.get_filter(i)[0] for i in range(pipeline.get_nfilters())]
    if codes not in ([], [h5py.h5z.FILTER_DEFLATE]):
        return "compressed with another filter than gzip"
    if pixels.file.userblock_size:
        return "the file begins with a user block"
    if pixels.chunks is None:
        offset = pixels.id.get_offset()
        frame_bytes = int(np.prod(pixels.shape[1:]))
        if offset is None:
            return "not stored in the file itself"
        return ChunkTable(
            offset + frame_bytes * np.arange(len(pixels)), np.full(len(pixels), frame_bytes), 1, is_deflated=False
        )
    if pixels.chunks[1:] != pixels.shape[1:]:
        return f"chunks of {pixels.chunks} cut through frames"
    per_chunk = pixels.chunks[0]
    table = np.zeros((-(-len(pixels) // per_chunk), 3), dtype=np.int64)

    def note(chunk: h5py.h5d.StoreInfo) -> None:
        table[chunk.chunk_offset[0] // per_chunk] = chunk.byte_offset, chunk.size, chunk.filter_mask

    pixels.id.chunk_iter(note)
    if table[:, 2].any():
        return "some chunks are stored unfiltered"
    return ChunkTable(table[:, 0], table[:, 1], per_chunk, is_deflated=bool(codes))


class MappedFrames:
    """Frames that stay compressed in memory and are inflated whenever they are read.

    The file is mapped, so its pages are memory that the processes of one machine share; the first pass over it
    (`check`) reads them in. Inflating lets other threads run.
    """

    def __init__(self, store: EpisodeStore, table: ChunkTable, inflater: Inflater | None = None) -> None:
        self.shape = store.frame_shape
        self._path = store.path
        self._table = table
        self._inflater, how = fastest_inflater()
        if inflater is not None:
            self._inflater, how = inflater, f"inflated by {inflater.library}, as asked for"
        self._checksums = store.frame_checksums() if table.frames_per_chunk == 1 else None
        with store.path.open("rb") as file:
            self._file = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        self.description = f"frames mapped from the file, {how if table.is_deflated else 'not compressed'}"

    @property
    def has_checksums(self) -> bool:
        """Whether `check` can tell a damaged frame without decoding it."""
        return self._checksums is not None

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write the frames at `rows` to `out`, which must be contiguous."""
        if not out.flags.c_contiguous:
            raise ValueError("Frames can only be read into contiguous memory.")
        frame_bytes = int(np.prod(self.shape))
        flat = out.reshape(len(rows), frame_bytes)
        if not self._table.is_deflated:
            self._copy(rows, flat)
        elif self._table.frames_per_chunk == 1:
            self._inflate(rows, rows, flat)
        else:
            self._inflate_shared_chunks(rows, flat)

    def check(self, rows: np.ndarray) -> None:
        """Refuse frames at `rows` that differ from what was written, for files that have checksums."""
        if self._checksums is None:
            return
        starts = self._table.byte_offsets[rows].tolist()
        sizes = self._table.sizes[rows].tolist()
        for row, start, size, expected in zip(rows, starts, sizes, self._checksums[rows].tolist(), strict=True):
            if zlib.crc32(self._file.data[start : start + size]) != expected:
                raise self._fault(int(row), "the stored frame differs from its checksum")

    def _copy(self, rows: np.ndarray, flat: np.ndarray) -> None:
        frame_bytes = flat.shape[1]
        chunks, slots = np.divmod(rows, self._table.frames_per_chunk)
        for i, start in enumerate((self._table.byte_offsets[chunks] + slots * frame_bytes).tolist()):
            flat[i] = self._file[start : start + frame_bytes]

    def _inflate(self, chunks: np.ndarray, rows: np.ndarray, flat: np.ndarray) -> None:
        """Writes the chunks to `flat` `[n, bytes]`; damage is reported at the row of the chunk in `rows`."""
        offsets, sizes = self._table.byte_offsets[chunks], self._table.sizes[chunks]
        try:
            # Frames with checksums were compared with them when the file was opened.
            self._inflater.inflate(self._file, offsets, sizes, flat, verify=self._checksums is None)
        except DamagedStreamError as error:
            raise self._fault(int(rows[error.index]), f"the frame cannot be decoded ({error.problem})") from None

    def _inflate_shared_chunks(self, rows: np.ndarray, flat: np.ndarray) -> None:
        chunks, slots = np.divmod(rows, self._table.frames_per_chunk)
        frames = np.empty((self._table.frames_per_chunk, flat.shape[1]), dtype=np.uint8)
        for chunk in np.unique(chunks):
            here = np.flatnonzero(chunks == chunk)
            self._inflate(chunks[here[:1]], rows[here[:1]], frames.reshape(1, -1))
            flat[here] = frames[slots[here]]

    def _fault(self, row: int, problem: str) -> Exception:
        return fault(self._path, schema.PIXELS, row, problem + ".", "Collect or download the file again.")


class PlainFrames:
    """Frames read through HDF5, one thread at a time: for filters only HDF5 knows."""

    def __init__(self, store: EpisodeStore, reason: str) -> None:
        self.shape = store.frame_shape
        self.description = f"frames read through HDF5, one thread at a time ({reason}); a converted file is faster"
        self._store = store
        self._lock = Lock()

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write the frames at `rows` to `out`."""
        pixels = self._store.pixels
        per_chunk = pixels.chunks[0] if pixels.chunks else 1
        chunks = rows // per_chunk
        with self._lock:
            for chunk in np.unique(chunks):
                here = chunks == chunk
                wanted = rows[here]
                # One read per chunk: HDF5 would otherwise decode a chunk of 100 frames for each of them.
                first = int(wanted.min())
                out[here] = self._read_run(first, int(wanted.max()) + 1)[wanted - first]

    def _read_run(self, start: int, stop: int) -> np.ndarray:
        try:
            frames: np.ndarray = self._store.pixels[start:stop]
        except OSError as error:
            problem = f"the frames to row {stop - 1} cannot be decoded ({str(error).splitlines()[0]})."
            raise fault(self._store.path, schema.PIXELS, start, problem, "Download the file again.") from None
        return frames


class DownsampledFrames:
    """Frames of another source at a smaller size, computed whenever they are read."""

    def __init__(self, source: FrameSource, image_size: int) -> None:
        check_image_size(image_size, source.shape[:2])
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


def open_frames(
    store: EpisodeStore,
    episodes: Sequence[int],
    *,
    image_size: int | None = None,
    num_threads: int = 1,
    decoded_limit_bytes: int = DECODED_LIMIT_BYTES,
) -> FrameSource:
    """The fastest source of the frames of `episodes` that fits in memory.

    Frames at their stored size stay compressed. Frames asked for at a smaller `image_size` are decoded once and kept
    if they fit in `decoded_limit_bytes`, and otherwise decoded and downsampled at each read.
    """
    rows = np.concatenate([np.arange(store.rows_of(e).start, store.rows_of(e).stop) for e in episodes])
    table = chunk_table(store.pixels)
    if isinstance(table, str):
        source: FrameSource = PlainFrames(store, table)
    else:
        source = mapped = MappedFrames(store, table)
        for part in np.array_split(rows, -(-len(rows) // 4096)):
            mapped.check(part)
    if image_size is None or (image_size, image_size) == store.frame_shape[:2]:
        return source
    small = DownsampledFrames(source, image_size)
    if len(rows) * int(np.prod(small.shape)) > decoded_limit_bytes:
        return small
    return DecodedFrames(small, rows, num_threads)
