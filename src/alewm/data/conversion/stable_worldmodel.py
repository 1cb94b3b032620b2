"""Data sets that stable-worldmodel writes: Lance tables, and folders of `.npz` columns with images or videos.

    NAME.lance/          rows in the order of episodes: episode_idx, step_idx, pixels (an encoded image), action, ...
    NAME/                ep_len.npz  ep_offset.npz  action.npz  ...     one array `arr_0` each, all episodes in a row
      pixels/            ep_0_step_0.jpeg ep_0_step_1.jpeg ...          or ep_0.mp4 ep_1.mp4 ...

Both are read an episode at a time. Row t holds what was observed at frame t and the action taken there.
"""

import zipfile
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from alewm.data import schema
from alewm.data.conversion import frames as frame_files
from alewm.data.conversion.frames import CameraEpisodes
from alewm.data.conversion.recordings import Columns, as_array, checked_episode
from alewm.errors import InputError
from alewm.files import natural_order

EPISODE, STEP = "episode_idx", "step_idx"
LENGTHS, OFFSETS = "ep_len", "ep_offset"


def lance_table(path: Path) -> Path | None:
    """The Lance table that `path` is, or the only one it holds."""
    if path.suffix == ".lance" or (path / "_versions").is_dir():
        return path if path.is_dir() else None
    found = sorted(path.glob("*.lance")) if path.is_dir() else []
    if len(found) > 1:
        names = ", ".join(table.name for table in found)
        raise InputError(f"{path} holds several Lance tables; name one of {names}.")
    return found[0] if found else None


def is_column_folder(path: Path) -> bool:
    """Whether `path` is a folder of `.npz` columns with its index of episodes."""
    return (path / f"{LENGTHS}.npz").is_file() and (path / f"{OFFSETS}.npz").is_file()


@dataclass(frozen=True)
class _Episodes(CameraEpisodes):
    """What both layouts share: episodes are runs of rows."""

    layout: ClassVar[str]
    """Its name in converted files."""

    @property
    def lengths(self) -> np.ndarray:
        """Rows of each episode."""
        raise NotImplementedError

    @property
    def num_episodes(self) -> int:
        """Episodes in the data set."""
        return len(self.lengths)

    @property
    def fps(self) -> float | None:
        """Neither layout says it."""
        return None

    def identity(self) -> dict[str, Any]:
        """What tells this data set from others: names and sizes of all its files."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return {"format": self.layout, "digest": frame_files.digest_of(self.folder, files), "camera": self.key}

    def episode(self, number: int) -> dict[str, np.ndarray]:
        """The columns of one episode; our file gets its own index."""
        pixels, columns = self._read(number)
        return checked_episode(f"{self.folder}, episode {number}", pixels, columns, schema.INDEX_COLUMNS)

    def _read(self, episode: int) -> tuple[np.ndarray, Columns]:
        """Frames and all other columns of one episode."""
        raise NotImplementedError

    def _some(self, cameras: list[str]) -> list[str]:
        if not cameras:
            raise InputError(
                f"{self.folder} has no column of encoded images. alewm reads stable-worldmodel's HDF5, lance, folder "
                f"and video formats; convert others with its own tool: swm convert NAME --dest-format lance"
            )
        return cameras


@dataclass(frozen=True)
class LanceEpisodes(_Episodes):
    """The episodes of a Lance table, as a source for `alewm.data.collect.collect`."""

    layout = "lance"

    @cached_property
    def cameras(self) -> list[str]:
        """Binary columns, which hold encoded images."""
        return self._some([field.name for field in _opened(self.folder).schema if "binary" in str(field.type)])

    @cached_property
    def lengths(self) -> np.ndarray:
        """Rows of each episode, from the column of episode numbers alone, a batch of rows at a time."""
        table = _opened(self.folder)
        missing = {EPISODE, STEP, schema.ACTION} - set(table.schema.names)
        if missing:
            raise InputError(
                f"{self.folder} lacks {', '.join(sorted(missing))}; a table that stable-worldmodel wrote was expected. "
                f"It has {', '.join(table.schema.names)}."
            )
        starts, num_rows, latest = list[int](), 0, np.empty(0, np.int64)
        for batch in table.scanner(columns=[EPISODE]).to_batches():
            numbers = np.concatenate([latest, batch.column(0).to_numpy()])
            steps = np.diff(numbers)
            rows = num_rows + np.arange(len(steps)) + (1 - len(latest))
            if (steps < 0).any():
                row = int(rows[steps < 0][0])
                raise InputError(f"{self.folder}, row {row}: {EPISODE} decreases. Write the table episode by episode.")
            starts += rows[steps > 0].tolist()
            num_rows += batch.num_rows
            latest = numbers[-1:]
        if num_rows == 0:
            raise InputError(f"{self.folder} has no rows.")
        return np.diff([0, *starts], append=num_rows)

    def _read(self, episode: int) -> tuple[np.ndarray, Columns]:
        start, count = int(self.lengths[:episode].sum()), int(self.lengths[episode])
        others = [name for name in _opened(self.folder).schema.names if name not in self.cameras]
        scanner = _opened(self.folder).scanner(columns=[self.key, *others], offset=start, limit=count)
        rows = scanner.to_table()
        columns = {name: as_array(rows.column(name)) for name in others}
        steps = columns.pop(STEP)
        if not np.array_equal(steps, np.arange(count)):
            raise InputError(f"{self.folder}, episode {episode}: {STEP} does not count 0, 1, 2, ...")
        del columns[EPISODE]
        frames = []
        for step, content in enumerate(rows.column(self.key).to_pylist()):
            place = f"{self.folder}, episode {episode}, step {step}"
            if not content:
                raise InputError(f"{place}: no image. Write the table again.")
            frames.append(self.size.decoded(content, place))
        return frame_files.stacked(frames, f"{self.folder}, episode {episode}"), columns


@dataclass(frozen=True)
class ColumnFolderEpisodes(_Episodes):
    """The episodes of a folder of columns, as a source for `alewm.data.collect.collect`."""

    layout = "stable-worldmodel"

    @cached_property
    def cameras(self) -> list[str]:
        """Folders in it, which hold images or videos."""
        return self._some(sorted(path.name for path in self.folder.iterdir() if path.is_dir()))

    @cached_property
    def lengths(self) -> np.ndarray:
        """Rows of each episode, checked against the offsets."""
        lengths, offsets = (_array(self.folder / f"{name}.npz") for name in (LENGTHS, OFFSETS))
        lengths = lengths.astype(np.int64)
        if (lengths < 1).any() or not np.array_equal(offsets, np.cumsum(lengths) - lengths):
            raise InputError(f"{self.folder}: {OFFSETS}.npz does not follow from {LENGTHS}.npz. Write it again.")
        return lengths

    def _read(self, episode: int) -> tuple[np.ndarray, Columns]:
        start, count = int(self.lengths[:episode].sum()), int(self.lengths[episode])
        columns, total = {}, int(self.lengths.sum())
        for path in sorted(self.folder.glob("*.npz")):
            if path.stem in (LENGTHS, OFFSETS):
                continue
            values = _array(path)
            if values.ndim == 0 or len(values) != total:
                raise InputError(f"{path}: shape {list(values.shape)}, but the episodes have {total} rows together.")
            columns[path.stem] = values[start : start + count]
        video = self.folder / self.key / f"ep_{episode}.mp4"
        if video.is_file():
            return frame_files.read_video(video, self.size), columns
        images = sorted(
            (self.folder / self.key).glob(f"ep_{episode}_step_*"), key=lambda path: natural_order(path.name)
        )
        return frame_files.read_images(images, self.size, f"{self.folder / self.key}, episode {episode}"), columns


@lru_cache(maxsize=2)
def _opened(path: Path) -> Any:
    """The Lance table at `path`; opened in each process, because its handle cannot be sent to another."""
    lance = frame_files.required("lance", path)
    try:
        return lance.dataset(str(path))
    except (ValueError, OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not a Lance table that can be read ({reason}). Download it again.") from None


@lru_cache(maxsize=16)
def _array(path: Path) -> np.ndarray:
    """The array in a `.npz` file; pickled objects are refused."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            array: np.ndarray = archive["arr_0"]
            return array
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(
            f"{path}: no array `arr_0` of numbers that can be read ({error}). Download it again."
        ) from None
