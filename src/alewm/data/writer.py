"""Writing an episode file: in order, byte for byte reproducible, and continued after a kill."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np

from alewm.data import schema
from alewm.data.checks import ROWS_PER_CHECKSUM, checksums_of, texts_checksum
from alewm.data.codec import Compression
from alewm.data.journal import (
    RECORD_VERSION,
    EncodedEpisode,
    Journal,
    encode_episode,
    from_bytes,
    sealed,
    to_bytes,
    unsealed,
)
from alewm.errors import InputError
from alewm.files import flush_folder, naming

# Version 1.10 of the format has a compact chunk index (25 bytes per frame instead of 60) and opens everywhere today.
_FORMAT = ("v110", "v110")
_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def journal_path(path: Path) -> Path:
    """Where the finished episodes of the unfinished file `path` are kept."""
    return path.with_name(path.name + ".journal")


def make_record(episode: Mapping[str, np.ndarray], compression: Compression, draw_every: int) -> bytes:
    """An episode given as arrays `[rows, ...]`, checked and compressed, as `StoreWriter.append_record` takes it.

    All that takes time is done here, so that other processes can do it; only compressed bytes travel.
    """
    return sealed(to_bytes(encode_episode(episode, compression, draw_every)))


class StoreWriter:
    """Appends episodes to the file `path`, which appears under its name once it is complete.

    Until then there are two files beside it: `path.journal`, which holds every finished episode and survives a kill,
    and `path.partial`, the HDF5 file being built, which a kill may leave damaged and which is then rebuilt from the
    journal by the same calls in the same order. So an interrupted and an uninterrupted run end in the same bytes.

    Use it as a context manager: leaving it normally completes the file, leaving it by an exception keeps the journal
    for the next attempt.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        attributes: Mapping[str, Any] | None = None,
        compression: Compression = Compression(),  # noqa: B008 (frozen)
    ) -> None:
        self.path = Path(path)
        if self.path.exists():
            raise InputError(f"{self.path} exists already; delete it or write to another path.")
        if not self.path.parent.is_dir():
            raise InputError(f"The folder {self.path.parent} does not exist; create it first.")
        self.compression = compression
        self.attributes = dict(attributes or {})
        self.draw_every = schema.draw_every_of(self.path, self.attributes)
        self._partial = self.path.with_name(self.path.name + ".partial")
        self._journal = Journal(
            journal_path(self.path),
            {
                # What records have held since versions 1 and 2: a file begun by an older alewm can be finished.
                "file_version": 1 if self.draw_every == 1 else 2,
                "record_version": RECORD_VERSION,
                "attributes": self.attributes,
                **compression.identity(),
            },
        )
        self._lengths: list[int] = []
        self._num_rows = 0
        self._columns: dict[str, list[np.ndarray]] = {}
        self._frame_checksums: dict[str, list[np.ndarray]] = {}
        self._first: EncodedEpisode | None = None
        self._remove_partial()
        with naming(self.path):
            self._file = h5py.File(self._partial, "x", libver=_FORMAT)  # which follows no link
            for record in self._journal.replay():
                self._write(from_bytes(record))

    def _remove_partial(self) -> None:
        """Removes what a killed process left; a file that HDF5 did not begin is somebody's own, and is refused."""
        if self._partial.is_file() and not self._partial.is_symlink():
            with self._partial.open("rb") as file:
                begins = file.read(len(_SIGNATURE))
            if begins.rstrip(b"\0") and begins != _SIGNATURE:
                self._journal.close()
                raise InputError(
                    f"{self._partial} is in the way: a file is written under that name until it is complete. Move it "
                    f"away, or write to another path."
                )
        self._partial.unlink(missing_ok=True)

    @property
    def num_episodes(self) -> int:
        """Episodes written so far, those of an interrupted run included: the next one to append has this number."""
        return len(self._lengths)

    def append(self, episode: Mapping[str, np.ndarray]) -> None:
        """Add one episode given as arrays `[rows, ...]`."""
        self.append_record(make_record(episode, self.compression, self.draw_every))

    def append_record(self, record: bytes) -> int:
        """Add one episode that `make_record` was given, in another process for instance; returns its frames."""
        episode = from_bytes(unsealed(record))
        self._check_layout(episode)
        with naming(self.path):
            self._journal.append_sealed(record)
            self._write(episode)
        return episode.num_frames

    def complete(self) -> Path:
        """Finish the file, give it its name and return that."""
        if not self._lengths:
            raise InputError(f"{self.path} would hold no episode; append at least one.")
        with naming(self.path):
            with _raising_what_is_only_printed():
                self._write_index()
                self._file.close()
            # In this order a power cut finds the journal, or the whole file under its name.
            with self._partial.open("rb+") as file:
                os.fsync(file.fileno())
            self._partial.replace(self.path)
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
        """Let go of the files; the journal stays for the next attempt."""
        with suppress(Exception), _raising_what_is_only_printed():  # what could not be written is of no use any more
            self._file.close()
        self._partial.unlink(missing_ok=True)
        self._journal.close()

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abandon()
            return
        try:
            self.complete()
        except BaseException:  # a full disk, for instance, which half a file would only fill further
            self.abandon()
            raise

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

    def _write(self, episode: EncodedEpisode) -> None:
        if self._first is None:
            self._first = episode
            for name, frames in episode.frames.items():
                self._create_frames(name, frames.shape)
        start = self._num_rows
        for name, frames in episode.frames.items():
            dataset = self._file[name]
            dataset.resize(start + episode.num_rows, axis=0)
            write = dataset.id.write_direct_chunk
            for row, stream in enumerate(frames.streams(), start):
                if len(stream):
                    write((row, 0, 0, 0), stream)
            self._frame_checksums.setdefault(name, []).append(frames.checksums)
        for name, values in episode.columns.items():
            self._columns.setdefault(name, []).append(values)
        self._lengths.append(episode.num_rows)
        self._num_rows += episode.num_rows

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


@contextmanager
def _raising_what_is_only_printed() -> Iterator[None]:
    """Raises the first error of the block that could only be printed.

    HDF5 keeps a part of what it is given and writes it when a data set is let go of. h5py can only print a failure
    there: a full disk would leave a file that looks finished.
    """
    missed: list[BaseException] = []
    hooks = sys.excepthook, sys.unraisablehook
    sys.excepthook = lambda _, error, __: missed.append(error)
    sys.unraisablehook = lambda found: missed.append(found.exc_value or RuntimeError(found.err_msg))
    try:
        yield
    finally:
        sys.excepthook, sys.unraisablehook = hooks
    if missed:
        raise missed[0]


def _describe(layout: tuple[str, tuple[int, ...]] | None) -> str:
    return "absent" if layout is None else f"{np.dtype(layout[0])} with rows of shape {layout[1]}"
