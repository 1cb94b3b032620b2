"""An episode file, validated and open for reading."""

import hashlib
import shlex
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np

from alewm.data import schema
from alewm.data.checks import (
    RESTORE,
    CheckedColumn,
    check_actions,
    check_codec,
    check_row_counts,
    fault,
    find_columns,
    open_file,
    read_by_hdf5,
    read_texts,
    read_version,
)
from alewm.data.episodes import Episode, EpisodeIndex, build_index
from alewm.data.windows import WindowIndex, WindowShape
from alewm.errors import InputError, unknown_name
from alewm.shapes import FRAME_SKIP

_NUM_SAMPLED_FRAMES = 32


class EpisodeStore:
    """Episodes of one HDF5 file: those written by `StoreWriter`, and the published files of the same layout.

    Opening checks all that can be checked without decoding every frame: columns, dtypes, row counts, the index, every
    action, the codec, the presence of every frame's chunk, and some frames spread over the file. What was accepted
    but deserves a word is in `notes`.
    """

    def __init__(self, path: Path, file: h5py.File) -> None:
        self.path = path
        self.notes: list[str] = []
        self.version: int | None
        """The version of the file's layout; None for files from elsewhere."""
        self.attributes: dict[str, Any]
        """What the collector recorded about the file; empty for files from elsewhere."""
        self.encoder: str | None
        """What compressed the frames, for files that say it."""
        self._file = file
        self._datasets = find_columns(path, file)
        self._columns = {name: CheckedColumn(path, name, dataset) for name, dataset in self._datasets.items()}
        self.version = read_version(path, file)
        self.attributes, self.encoder = read_texts(path, file)
        self.draw_every = schema.draw_every_of(path, self.attributes)
        check_row_counts(path, self._datasets)
        self._check_frames_may_be_there()
        self.index = self._read_index()
        self.actions = self._read_actions()
        self._check_frames()
        self._note_missing_checksums()

    @classmethod
    def open(cls, path: str | Path) -> "EpisodeStore":
        """The store at `path`; an unsound file is refused with the column and row at fault."""
        path = Path(path)
        file = open_file(path)
        try:
            with read_by_hdf5(path):
                return cls(path, file)
        except BaseException:
            file.close()
            raise

    @property
    def num_episodes(self) -> int:
        return len(self.index.lengths)

    @property
    def num_rows(self) -> int:
        """Recorded steps of all episodes together."""
        return len(self.actions)

    @property
    def num_frames(self) -> int:
        """Rows that were drawn, of all episodes together."""
        return int((-(-self.lengths // self.draw_every)).sum())

    @property
    def lengths(self) -> np.ndarray:
        """Rows of each episode, int64 [E]."""
        return self.index.lengths

    @property
    def offsets(self) -> np.ndarray:
        """First row of each episode, int64 [E]."""
        return self.index.offsets

    @property
    def action_dim(self) -> int:
        return int(self.actions.shape[1])

    @property
    def window_shape(self) -> WindowShape:
        """The shape of training windows at the frame skip that the file was made for."""
        return WindowShape(frame_skip=schema.frame_skip_of(self.path, self.attributes) or FRAME_SKIP)

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """(Y, X, 3) of a frame."""
        _, height, width, channels = self.pixels.shape
        return height, width, channels

    @property
    def pixels(self) -> h5py.Dataset:
        """The frames as HDF5 has them."""
        return self._datasets[schema.PIXELS]

    @property
    def column_names(self) -> tuple[str, ...]:
        """What was recorded, without index and checksums."""
        return tuple(name for name in self._datasets if not schema.is_derived(name, self._datasets))

    @property
    def numeric_names(self) -> tuple[str, ...]:
        """What was recorded as numbers for each row; files from elsewhere may have other things too."""
        return tuple(
            name
            for name in self.column_names
            if self._datasets[name].ndim and self._datasets[name].dtype.kind in "biuf"
        )

    @property
    def stored_names(self) -> tuple[str, ...]:
        """Every column, the index included."""
        return tuple(self._datasets)

    def column(self, name: str) -> np.ndarray:
        """The whole column `name`, which must not be frames: `[N, ...]`."""
        if name == schema.ACTION:
            return self.actions
        if name not in self._datasets:
            raise unknown_name(f"column of {self.path}", name, self.column_names)
        if name == schema.PIXELS:
            raise InputError("Frames of a whole file do not fit in memory; use `frames` or a `WindowLoader`.")
        return self._columns[name].read()

    def rows_of(self, episode: int) -> slice:
        """The rows of `episode` in every column."""
        if not 0 <= episode < self.num_episodes:
            raise InputError(f"{self.path} has episodes 0 to {self.num_episodes - 1}, not {episode}.")
        offset = int(self.offsets[episode])
        return slice(offset, offset + int(self.lengths[episode]))

    def drawn_rows(self, episodes: Iterable[int] | None = None) -> np.ndarray:
        """The rows of `episodes`, or of all, that have a frame, int64 `[n]`."""
        parts = [self.rows_of(episode) for episode in (range(self.num_episodes) if episodes is None else episodes)]
        return np.concatenate([np.arange(part.start, part.stop, self.draw_every) for part in parts])

    def windows(self, episodes: Iterable[int], shape: WindowShape = WindowShape()) -> WindowIndex:  # noqa: B008 (frozen)
        """The training windows of `episodes`, which must be among those the file has, in their order."""
        numbers = np.asarray(list(episodes), dtype=np.int64)
        for episode in numbers:
            self.rows_of(int(episode))
        return WindowIndex(self.offsets[numbers], self.lengths[numbers], shape, self.draw_every)

    def frames(self, rows: np.ndarray) -> np.ndarray:
        """The frames at `rows`, uint8 `[n, Y, X, 3]`; a row that was not drawn is refused."""
        self._check_drawn(rows)
        if self._columns[schema.PIXELS].checksums is not None:
            self._columns[schema.PIXELS].check_frames(rows)
        frames = np.empty((len(rows), *self.frame_shape), dtype=np.uint8)
        chunks = rows // (self.pixels.chunks[0] if self.pixels.chunks else 1)
        for chunk in np.unique(chunks):
            here = chunks == chunk
            # One read per chunk: HDF5 would otherwise decode a chunk of 100 frames for each of them.
            first = int(rows[here].min())
            frames[here] = self._decode(first, int(rows[here].max()) + 1)[rows[here] - first]
        return frames

    def episode(self, episode: int) -> dict[str, np.ndarray]:
        """All recorded columns of numbers of one episode, the frames being those that were drawn."""
        return {schema.PIXELS: self.frames(self.drawn_rows([episode])), **self.episode_columns(episode)}

    def episode_columns(self, episode: int) -> dict[str, np.ndarray]:
        """All recorded columns of numbers of one episode but its frames."""
        rows = self.rows_of(episode)
        others = self._other_names
        return {schema.ACTION: self.actions[rows], **{name: self._columns[name].read(rows) for name in others}}

    @cached_property
    def _other_names(self) -> tuple[str, ...]:
        """Columns with a value per row besides frames and actions; a single value is about the file as a whole."""
        return tuple(name for name in self.numeric_names if name not in (schema.PIXELS, schema.ACTION))

    def frame_checksums(self) -> np.ndarray | None:
        """CRC-32 of every compressed frame, for files that have them."""
        own = self._columns[schema.PIXELS].checksums
        if own is None and (before := schema.PIXELS + schema.CHECKSUM_SUFFIX) in self._columns:
            own = self._columns[before].read()  # versions 1 and 2
            if own.dtype.kind not in "iu" or own.shape != (len(self.pixels),):
                found = f"{own.dtype} {list(own.shape)}"
                raise fault(self.path, before, None, f"one checksum per row was expected, found {found}.", RESTORE)
        return own

    def check_column(self, name: str) -> bool:
        """Whether column `name` has checksums; if it does, all of it was compared with them."""
        return self._columns[name].check()

    @cached_property
    def columns_without_checksums(self) -> tuple[str, ...]:
        """Columns without checksums, in which damage cannot be detected."""
        return tuple(name for name, column in self._columns.items() if column.checksums is None)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of layout, index, actions and frames spread over the file, however they are compressed."""
        digest = hashlib.sha256()
        for name in sorted(self.column_names):
            column = self._datasets[name]
            digest.update(f"{name} {column.dtype.str} {column.shape};".encode())
        digest.update(self.lengths.astype("<i8").tobytes())
        digest.update(self.actions.astype("<f4").tobytes())
        digest.update(self.frames(self._sampled_rows()).tobytes())
        return digest.hexdigest()[:32]

    def __len__(self) -> int:
        return self.num_episodes

    def __getitem__(self, number: int) -> Episode:
        """The episode with this number, read from the file now; negative numbers count from the end."""
        count = self.num_episodes
        if not -count <= number < count:
            raise IndexError(f"{self.path} has episodes 0 to {count - 1}, not {number}.")
        return Episode(number % count, self.episode(number % count), self.draw_every)

    def __iter__(self) -> Iterator[Episode]:
        return (self[number] for number in range(self.num_episodes))

    def __repr__(self) -> str:
        height, width, _ = self.frame_shape
        task = f"task={self.attributes['task']!r}, " if "task" in self.attributes else ""
        return (
            f"EpisodeStore({str(self.path)!r}, {task}{self.num_episodes} episodes, {self.num_rows} steps, frames "
            f"{height} x {width}, actions of {self.action_dim})"
        )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "EpisodeStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_drawn(self, rows: np.ndarray) -> None:
        if self.draw_every == 1 or len(rows) == 0:
            return
        episodes = np.searchsorted(self.offsets, rows, side="right") - 1
        missing = rows[(rows - self.offsets[episodes]) % self.draw_every != 0]
        if len(missing):
            raise InputError(f"Row {missing[0]} of {self.path} was not drawn: one of {self.draw_every} rows was.")

    def _read_index(self) -> EpisodeIndex:
        if self.version is not None and self.version >= schema.FILE_VERSION:
            for name in (schema.STEP, schema.EPISODE, schema.LENGTH, schema.OFFSET):
                if name not in self._datasets:
                    raise fault(self.path, name, None, f"missing; files of version {self.version} have it.", RESTORE)
        found = {name: self._columns[name].read() for name in schema.INDEX_COLUMNS if name in self._datasets}
        index = build_index(self.path, found, len(self.pixels))
        if index.starts_at_one:
            self.notes.append(
                f"{self.path} was recorded without reset frames (step_idx counts from 1): the last action of each "
                f"episode is not one that was taken there, and is ignored."
            )
        return index

    def _read_actions(self) -> np.ndarray:
        actions = self._columns[schema.ACTION].read().astype(np.float32)
        if self.index.starts_at_one:
            actions[self.index.last_rows] = np.nan
        check_actions(self.path, actions, self.index.last_rows)
        actions.flags.writeable = False
        return actions

    def _note_missing_checksums(self) -> None:
        missing = self.columns_without_checksums
        if self.version is None or self.version < schema.FILE_VERSION:
            since = "was made elsewhere" if self.version is None else f"has file version {self.version}"
            self.notes.append(
                f"{self.path} {since}: its states and actions have no checksums, and damage to them goes unnoticed. "
                f"`alewm convert {shlex.quote(str(self.path))} --out NEW` makes a copy that has them."
            )
        elif missing:
            self.notes.append(f"{self.path} has no checksums for {', '.join(missing)}: another program wrote them.")

    def _check_frames_may_be_there(self) -> None:
        """Refuse more rows than stored frames can account for, before memory is taken for them."""
        chunks = self.pixels.chunks
        most = len(self.pixels) if chunks is None else self.pixels.id.get_num_chunks() * chunks[0] * self.draw_every
        if 2 * most < len(self.pixels) or (chunks is None and self.pixels.id.get_storage_size() < self.pixels.nbytes):
            problem = f"{len(self.pixels)} rows are declared, but only {most} can have a frame: some was never written."
            raise fault(self.path, schema.PIXELS, None, problem, "Make the file again.")

    def _check_frames(self) -> None:
        check_codec(self.path, schema.PIXELS, self.pixels)
        if self.pixels.chunks is not None:
            self._check_chunks(self.pixels.chunks)
        self.frames(self._sampled_rows())

    def _check_chunks(self, chunks: tuple[int, ...]) -> None:
        drawn = self.drawn_rows()
        per_row = [-(-n // c) for n, c in zip(self.pixels.shape[1:], chunks[1:], strict=True)]
        expected = len(np.unique(drawn // chunks[0])) * int(np.prod(per_row))
        if self.pixels.id.get_num_chunks() == expected:
            return
        # A chunk that was never written reads as zeros: a black frame that was never recorded.
        present: set[int] = set()
        self.pixels.id.chunk_iter(lambda chunk: present.add(chunk.chunk_offset[0]))
        rows = [row for row in drawn.tolist() if row - row % chunks[0] not in present]
        raise fault(
            self.path, schema.PIXELS, rows[0] if rows else None, "the frame was never written.", "Make the file again."
        )

    def _sampled_rows(self) -> np.ndarray:
        drawn = self.drawn_rows()
        rows: np.ndarray = drawn[np.unique(np.linspace(0, len(drawn) - 1, _NUM_SAMPLED_FRAMES).astype(np.int64))]
        return rows

    def _decode(self, start: int, stop: int) -> np.ndarray:
        try:
            frames: np.ndarray = self.pixels[start:stop]
        except OSError as error:
            problem = f"the frame cannot be decoded ({str(error).splitlines()[0]})."
            raise fault(self.path, schema.PIXELS, start, problem, "Collect or download the file again.") from None
        return frames
