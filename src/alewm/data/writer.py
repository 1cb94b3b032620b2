"""Writing an episode file: in order, byte for byte reproducible, and continued after a kill."""

import atexit
import io
import json
import os
import time
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
from h5py._objects import phil

from alewm.data import schema
from alewm.data.checks import ROWS_PER_CHECKSUM, checksums_of, texts_checksum
from alewm.data.codec import Compression
from alewm.data.journal import (
    RECORD_VERSION,
    EncodedEpisode,
    Journal,
    Places,
    encode_episode,
    from_bytes,
    to_bytes,
    without_frames,
)
from alewm.errors import InputError
from alewm.files import flush_folder, flush_in_place, naming, open_unlinked
from alewm.interrupts import DeferredInterrupts
from alewm.shapes import Int

# Version 1.10 of the format has a compact chunk index (25 bytes per frame instead of 60) and opens everywhere today.
_FORMAT = ("v110", "v110")
_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def journal_path(path: Path) -> Path:
    """Where the finished episodes of the unfinished file `path` are kept."""
    return path.with_name(path.name + ".journal")


def partial_path(path: Path) -> Path:
    """Where the unfinished file `path` is built."""
    return path.with_name(path.name + ".partial")


def make_record(episode: Mapping[str, np.ndarray], compression: Compression, draw_every: int) -> bytes:
    """An episode given as arrays `[rows, ...]`, checked and compressed, as `StoreWriter.append_record` takes it.

    All that takes time is done here, so that other processes can do it; only compressed bytes travel.
    """
    return to_bytes(encode_episode(episode, compression, draw_every))


class _Partial(io.RawIOBase):
    """The unfinished file as HDF5 reads and writes it; says where streams go, and leaves those that are there alone.

    HDF5 cannot open what a kill left, because most of its index was in memory. But the same calls put the same things
    to the same places. So a file is continued by its calls once more, without writing the streams again.

    HDF5 is never told of a failure: closing a file that cannot be written, it uses memory that it has freed, and the
    process crashes. After a failure nothing more is written, and `check` raises it.
    """

    def __init__(self, path: Path, *, continues: bool) -> None:
        self.path = path
        self._file = io.FileIO(path, "r+" if continues else "x+", opener=open_unlinked)  # neither follows a link
        self._position = self._end = 0  # as if the file were new: HDF5 refuses to begin in one that is not
        self._stream: memoryview | None = None
        self._place: int | None = None
        self._is_there = False
        self._kept = np.zeros((0, 2), np.int64)
        self._error: BaseException | None = None  # since it happened, what HDF5 writes is dropped

    def expect(self, stream: bytes | memoryview, place: int | None) -> None:
        """The next stream; it is in the file already if its place is known."""
        self._stream, self._place, self._is_there = memoryview(stream), place, place is not None

    def place_of_stream(self) -> int:
        """Where HDF5 put the expected stream."""
        if self._stream is not None:
            self._fail_misplaced()
        self.check()
        assert self._place is not None
        return self._place

    def keep(self, ranges: Int[np.ndarray, "streams 2"]) -> None:
        """From where to where streams are that nothing else may overwrite."""
        self._kept = ranges[ranges[:, 0].argsort()]

    def check(self) -> None:
        """Raises what a write failed with, or that HDF5 does not put things where it put them before."""
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Leave the file as it is now."""
        self._fail(InputError(f"{self.path} was let go of."))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._end}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        size = len(data)
        try:
            is_known = self._takes_stream(data) and self._is_there
            if not is_known and self._overwrites_kept(size):
                self._fail_misplaced()
            if not is_known and self._error is None:
                self._file.seek(self._position)
                written = 0
                while written < size:  # a full disk takes a part before it refuses
                    written += self._file.write(data[written:])
        except BaseException as error:
            self._fail(error)
        self._position += size
        self._end = max(self._end, self._position)
        return size

    def _takes_stream(self, data: Any) -> bool:
        """Whether `data` is the expected stream; HDF5 may write its index in between."""
        stream = self._stream
        if stream is None or len(data) != len(stream):
            return False
        # Streams that are there are not read again: what stands for them has their size and place.
        is_stream = self._place == self._position if self._is_there else bytes(data[:64]) == stream[:64]
        if is_stream:
            self._stream, self._place = None, self._position
        return is_stream

    def _overwrites_kept(self, size: int) -> bool:
        if not len(self._kept):
            return False
        behind = int(np.searchsorted(self._kept[:, 1], self._position, side="right"))
        return behind < len(self._kept) and int(self._kept[behind, 0]) < self._position + size

    def readinto(self, buffer: Any) -> int:
        try:
            self._file.seek(self._position)
            self._file.readinto(buffer)
        except BaseException as error:
            self._fail(error)
        self._position += len(buffer)
        return len(buffer)

    def truncate(self, size: int | None = None) -> int:
        size = self._position if size is None else size
        if len(self._kept) and size < self._kept[-1, 1]:
            self._fail_misplaced()
        if self._error is None:
            try:
                self._file.truncate(size)
            except BaseException as error:
                self._fail(error)
        return size

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error

    def _fail_misplaced(self) -> None:
        self._fail(
            InputError(
                f"{self.path} was begun by another version of h5py, which puts frames elsewhere. Finish it with that "
                f"version, or delete it and its journal to start over."
            )
        )

    def stream_at(self, place: int, size: int) -> bytes:
        """`size` bytes of the file, fewer at its end."""
        self._file.seek(place)
        return self._file.read(size) or b""

    def sync(self) -> None:
        """Put all that was written onto the disk."""
        flush_in_place(self.path, self._file.fileno())

    def close(self) -> None:
        self._file.close()
        super().close()


FLUSH_SECONDS = 5.0
"""The longest that episodes wait to be put onto the disk while more are appended."""


class StoreWriter:
    """Appends episodes to the file `path`, which appears under its name once it is complete.

    Until then there are two files beside it: `path.partial`, the HDF5 file being built, with every frame, and
    `path.journal`, which holds the rest of every finished episode and where its frames are. A kill leaves the HDF5 file
    without an index. It gets one by the same calls in the same order (`_Partial`), so that an interrupted and an
    uninterrupted run end in the same bytes, and no frame is on the disk twice.

    Use it as a context manager: leaving it normally completes the file, leaving it by an exception keeps both files for
    the next attempt.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        attributes: Mapping[str, Any] | None = None,
        compression: Compression = Compression(),  # noqa: B008 (frozen)
    ) -> None:
        self.path = Path(path)
        self._check_free()
        if not self.path.parent.is_dir():
            raise InputError(f"The folder {self.path.parent} does not exist; create it first.")
        self.compression = compression
        self.attributes = dict(attributes or {})
        self.draw_every = schema.draw_every_of(self.path, self.attributes)
        _check_has_journal(self.path)
        self._journal = Journal(
            journal_path(self.path),
            {"record_version": RECORD_VERSION, "attributes": self.attributes, **compression.identity()},
        )
        self._lengths: list[int] = []
        self._num_rows = 0
        self._columns: dict[str, list[np.ndarray]] = {}
        self._frame_checksums: dict[str, list[np.ndarray]] = {}
        self._first: EncodedEpisode | None = None
        self._held = ExitStack()
        self._held.callback(self._journal.close)
        # Also when the writer is garbage-collected and when the process ends: HDF5 itself must not end the file then.
        self._let_go = weakref.finalize(self, _close_all, self._held)
        # HDF5 must not end a file that it was interrupted in continuing: it would cut off what it has not come to.
        with self._abandoned_by_errors():
            self._open()

    def _open(self) -> None:
        """Begin the HDF5 file, or continue it with every episode of the journal whose frames are whole."""
        self._check_free()  # again: another process may have completed it before the journal was ours
        recorded = [without_frames(record) for record in self._journal.replay()]
        partial = partial_path(self.path)
        if not recorded:
            _remove_unfinished(partial)
        elif not partial.is_file():
            raise InputError(
                f"{partial} is missing: it has the frames of the episodes in {self._journal.path}. Put it back, or "
                f"delete the journal too to start over."
            )
        self._partial = _Partial(partial, continues=bool(recorded))
        self._held.callback(self._partial.close)
        found = list(takewhile(lambda each: self._holds_frames(*each), recorded))
        self._journal.keep(len(found))
        self._partial.keep(_ranges(found))
        with _uninterrupted():
            self._file = h5py.File(self._partial, "w", libver=_FORMAT)
            self._held.callback(_close_as_a_kill_would, self._file, self._partial)
        for episode, places in found:
            with _uninterrupted():
                self._write(episode, places)
        self._flush()
        flush_folder(self.path.parent)  # before there are episodes: a power cut could take one of the two names

    def _flush(self) -> None:
        """Put all episodes onto the disk."""
        self._partial.sync()  # before the journal, which says what is there
        self._journal.flush()
        self._flushed, self._num_flushed = time.monotonic(), self.num_episodes

    def _holds_frames(self, episode: EncodedEpisode, places: Places) -> bool:
        return all(
            zlib.crc32(self._partial.stream_at(place, size)) == checksum
            for name, frames in episode.frames.items()
            for place, size, checksum in zip(
                places[name].tolist(), frames.sizes.tolist(), frames.checksums.tolist(), strict=True
            )
            if size
        )

    @property
    def num_episodes(self) -> int:
        """Episodes written so far, those of an interrupted run included: the next one to append has this number."""
        return len(self._lengths)

    def append(self, episode: Mapping[str, np.ndarray]) -> None:
        """Add one episode given as arrays `[rows, ...]`."""
        self.append_record(make_record(episode, self.compression, self.draw_every))

    def append_record(self, record: bytes) -> int:
        """Add one episode that `make_record` was given, in another process for instance; returns its frames."""
        self._check_open()
        episode = from_bytes(record)
        self._check_layout(episode)
        with self._abandoned_by_errors(), _uninterrupted():
            self._journal.append(to_bytes(episode, self._write(episode), self._num_flushed))
            if time.monotonic() - self._flushed >= FLUSH_SECONDS:
                self._flush()
        return episode.num_frames

    @contextmanager
    def _abandoned_by_errors(self) -> Iterator[None]:
        """What HDF5 did in part cannot be done again in the same way, so that nothing may follow it."""
        try:
            with naming(self.path):
                yield
        except BaseException:
            self.abandon()
            raise

    def complete(self) -> Path:
        """Finish the file, give it its name and return that."""
        self._check_open()
        if not self._lengths:
            raise InputError(f"{self.path} would hold no episode; append at least one.")
        with self._abandoned_by_errors(), _uninterrupted():
            self._write_index()
            self._file.close()
            self._partial.check()
            # In this order a power cut finds the journal, or the whole file under its name.
            self._partial.sync()
            self._check_free()  # somebody may have put a file there meanwhile
            self._partial.close()
            self._partial.path.replace(self.path)
            flush_folder(self.path.parent)
            self._journal.delete()
        return self.path

    def _write_index(self) -> None:
        """Everything but the frames, which are in the file already."""
        lengths = np.array(self._lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        for name, parts in self._columns.items():
            self._write_column(name, np.concatenate(parts))
        self._write_column(schema.STEP, np.concatenate([np.arange(n, dtype=np.int64) for n in lengths]))
        self._write_column(schema.EPISODE, np.repeat(np.arange(len(lengths), dtype=np.int32), lengths))
        self._write_column(schema.LENGTH, lengths.astype(np.int32))
        self._write_column(schema.OFFSET, offsets.astype(np.int64))
        for name, parts in self._frame_checksums.items():
            self._file[name].attrs[schema.COLUMN_CHECKSUMS] = np.concatenate(parts)
        encoder, attributes = self.compression.encoder_in_words, json.dumps(self.attributes, sort_keys=True)
        self._file.attrs[schema.VERSION_ATTRIBUTE] = schema.FILE_VERSION
        # Of fixed length, so that HDF5 keeps them where it has checksums; its other place for texts, when damaged, can
        # make it loop for ever.
        self._file.attrs[schema.ENCODER_ATTRIBUTE] = np.bytes_(encoder)
        self._file.attrs[schema.ATTRIBUTES_ATTRIBUTE] = np.bytes_(attributes)
        self._file.attrs[schema.TEXTS_CHECKSUM] = np.uint32(texts_checksum(attributes, encoder))

    def abandon(self) -> None:
        """Let go of the files, which stay for the next attempt."""
        self._let_go()

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abandon()
            return
        with self._abandoned_by_errors():
            self.complete()

    def _check_free(self) -> None:
        if self.path.exists():
            raise InputError(f"{self.path} exists already; delete it or write to another path.")

    def _check_open(self) -> None:
        if not self._file:
            raise InputError(f"This writer of {self.path} has let go of its files; make another, which continues them.")

    def _check_layout(self, episode: EncodedEpisode) -> None:
        if self._first is None:
            return
        expected, found = self._first.layout(), episode.layout()
        for name in sorted({*expected, *found}):
            if expected.get(name) != found.get(name):
                raise InputError(
                    f"Episode {self.num_episodes} does not fit {self.path}: column {name!r} is "
                    f"{_describe(found.get(name))}, in earlier episodes {_describe(expected.get(name))}."
                )

    def _write(self, episode: EncodedEpisode, known: Places | None = None) -> Places:
        """Add `episode` to the HDF5 file; returns the places of its frames, which are there already if `known`."""
        if self._first is None:
            self._first = episode
            for name, frames in episode.frames.items():
                self._create_frames(name, frames.shape)
        start, places = self._num_rows, {}
        for name, frames in episode.frames.items():
            dataset, places[name] = self._file[name], np.zeros(episode.num_rows, np.int64)
            dataset.resize(start + episode.num_rows, axis=0)
            streams: Iterable[bytes | memoryview] = frames.streams()
            if known is not None:
                streams = (bytes(size) for size in frames.sizes.tolist())
            for row, stream in enumerate(streams):
                if len(stream):
                    self._partial.expect(stream, None if known is None else int(known[name][row]))
                    dataset.id.write_direct_chunk((start + row, 0, 0, 0), stream)
                    places[name][row] = self._partial.place_of_stream()
            self._frame_checksums.setdefault(name, []).append(frames.checksums)
        for name, values in episode.columns.items():
            self._columns.setdefault(name, []).append(values)
        self._lengths.append(episode.num_rows)
        self._num_rows += episode.num_rows
        self._partial.check()
        return places

    def _create_frames(self, name: str, shape: tuple[int, ...]) -> None:
        self._file.create_dataset(
            name,
            shape=(0, *shape),
            maxshape=(None, *shape),
            chunks=(1, *shape),
            dtype=np.uint8,
            track_times=False,
            compression="gzip",
            compression_opts=self.compression.level,
        )

    def _write_column(self, name: str, values: np.ndarray) -> None:
        dataset = self._file.create_dataset(
            name,
            data=values,
            maxshape=(None, *values.shape[1:]),
            chunks=(ROWS_PER_CHECKSUM, *values.shape[1:]),
            track_times=False,
        )
        dataset.attrs[schema.COLUMN_CHECKSUMS] = checksums_of(values)
        self._partial.check()  # soon, because a full disk has no room for the others either


def _ranges(found: Sequence[tuple[EncodedEpisode, Places]]) -> Int[np.ndarray, "streams 2"]:
    """From where to where each stream is."""
    ranges = [
        np.stack([places[name], places[name] + frames.sizes], 1)[frames.sizes > 0]
        for episode, places in found
        for name, frames in episode.frames.items()
    ]
    return np.concatenate([np.zeros((0, 2), np.int64), *ranges])


def _check_has_journal(path: Path) -> None:
    """Refuses frames without the journal that says what they are: it may not have been moved with them."""
    partial, journal = partial_path(path), journal_path(path)
    # The journal first: a process that completes the file takes the frames away before it.
    if not journal.exists() and partial.is_file() and not partial.is_symlink() and partial.stat().st_size:
        _check_ours(partial)
        raise InputError(
            f"{journal} is missing: without it the frames in {partial} are of no use. Put it back, or delete {partial} "
            f"too to start over."
        )


def _remove_unfinished(partial: Path) -> None:
    """Removes what has no finished episode."""
    if partial.is_file() and not partial.is_symlink():
        _check_ours(partial)
    partial.unlink(missing_ok=True)


def _check_ours(partial: Path) -> None:
    """Refuses a file that HDF5 did not begin: it is somebody's own."""
    with partial.open("rb") as file:
        begins = file.read(len(_SIGNATURE))
    if begins.rstrip(b"\0") and begins != _SIGNATURE:
        raise InputError(
            f"{partial} is in the way: a file is written under that name until it is complete. Move it away, or write "
            f"to another path."
        )


# From the end of the process on, no other thread may use HDF5: one that is stopped there would keep h5py's lock, and
# Python would wait for it for ever.
atexit.register(phil.acquire)


def _close_all(held: ExitStack) -> None:
    with suppress(Exception):  # on a full disk the journal cannot be closed without an error
        held.close()


def _close_as_a_kill_would(file: h5py.File, partial: _Partial) -> None:
    partial.abandon()
    with suppress(Exception), _uninterrupted():
        file.close()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, however often: HDF5 calls us back, and must see no exception (`_Partial`).

    One that it saw would be lost where a file is closed, and with it what was to be written.
    """
    with DeferredInterrupts(all_wait=True) as interrupts:
        yield
    if interrupts.is_waiting:
        interrupts.answer()


def _describe(layout: tuple[str, tuple[int, ...]] | None) -> str:
    return "absent" if layout is None else f"{np.dtype(layout[0])} with rows of shape {layout[1]}"
