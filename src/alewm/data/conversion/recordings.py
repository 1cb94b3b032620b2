"""A folder of videos or image folders with tables of actions, one episode each.

    recording/                           recording/
      episode_0.mp4                        actions.csv        # episode, action_x, action_y, ...
      episode_0.csv    # action_x, ...     episode_0/0.png 1.png 2.png ...
      episode_1.mp4                        episode_1/0.png 1.png ...
      episode_1.csv

An episode is a video, or a folder of images in the natural order of their names. Its actions are rows of `NAME.csv`
or `NAME.parquet` beside it, or of one table `actions.csv` / `actions.parquet` for all, whose column `episode` holds the
names. Row t is the action taken at frame t; since nothing follows the last frame, its row may be absent or empty.
Columns whose names begin with `action` are the action, in their order; a column `frame`, if there is one, must count
0, 1, 2, ...; other columns of numbers are stored under their own names.
"""

import csv
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from alewm.data import schema
from alewm.data.checks import row_without_action
from alewm.data.conversion import frames as frame_files
from alewm.data.conversion.frames import AS_RECORDED, FrameSize, required
from alewm.errors import InputError
from alewm.files import natural_order

TABLE_SUFFIXES = (".csv", ".parquet")
COMMON_TABLE = "actions"
EPISODE, FRAME = "episode", "frame"

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Recordings:
    """The episodes of such a folder, as a source for `alewm.data.collect.collect`."""

    folder: Path
    size: FrameSize = AS_RECORDED

    @cached_property
    def names(self) -> list[str]:
        """The episodes, in natural order."""
        if not self.folder.is_dir():
            raise InputError(f"{self.folder} is no folder. Give the folder that holds the recordings.")
        found = sorted(filter(_is_episode, self.folder.iterdir()), key=lambda path: natural_order(path.name))
        names = [path.stem if path.is_file() else path.name for path in found]
        if not names:
            if any(path.suffix.lower() in frame_files.IMAGE_SUFFIXES for path in self.folder.iterdir()):
                raise InputError(
                    f"{self.folder} holds images, which are one episode. Give the folder above it, in which every "
                    f"episode is a folder of images: {self.folder.absolute().parent}"
                )
            raise InputError(
                f"{self.folder} holds no episode: expected videos ({', '.join(frame_files.VIDEO_SUFFIXES)}) or "
                f"folders of images ({', '.join(frame_files.IMAGE_SUFFIXES)}), found {_listing(self.folder)}."
            )
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"{self.folder}: episode {twice[0]!r} is there twice. Keep one of its recordings.")
        return names

    @property
    def num_episodes(self) -> int:
        return len(self.names)

    @property
    def fps(self) -> float | None:
        """What the first video says; image folders say nothing."""
        path = self._recording(self.names[0])
        return frame_files.video_fps(path) if path.is_file() else None

    def identity(self) -> dict[str, Any]:
        """What tells these recordings from others: names and sizes of all files, and the tables themselves."""
        found = [path for path in self.folder.iterdir() if path.suffix.lower() in TABLE_SUFFIXES]
        for recording in map(self._recording, self.names):
            found += frame_files.image_files(recording) if recording.is_dir() else [recording]
        return {"format": "recordings", "digest": frame_files.digest_of(self.folder, found)}

    def __call__(self, seed: int, episodes: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
        """The episodes with these numbers; there is nothing for `seed` to decide."""
        for episode in episodes:
            yield self._episode(self.names[episode])

    def _episode(self, name: str) -> dict[str, np.ndarray]:
        recording = self._recording(name)
        if recording.is_dir():
            pixels = frame_files.read_images(frame_files.image_files(recording), self.size, str(recording))
        else:
            pixels = frame_files.read_video(recording, self.size)
        path, columns, first_row = self._rows(name)
        columns = {key: values for key, values in columns.items() if key != EPISODE}
        num_rows = len(next(iter(columns.values()), ()))
        if num_rows not in (len(pixels), len(pixels) - 1):
            raise InputError(
                f"{path}, episode {name!r}: {num_rows} rows, but {recording} has {len(pixels)} frames. One row per "
                f"frame was expected, or one less."
            )
        _check_order(path, columns.pop(FRAME, None), first_row)
        action_names = [key for key in columns if key.startswith(schema.ACTION)]
        if not action_names:
            raise InputError(
                f"{path}: expected columns whose names begin with 'action', found {', '.join(columns) or 'none'}."
            )
        parts = [_two_dimensional(path, key, columns.pop(key), first_row) for key in action_names]
        action = np.concatenate(parts, axis=1).astype(np.float32)
        others = {
            key: as_numbers(path, key, values) if values.ndim == 1 else values
            for key, values in columns.items()
            if are_numbers(values)
        }
        if num_rows < len(pixels):
            action, others = _one_more(action), {key: _one_more(values) for key, values in others.items()}
        check_actions(action, lambda row: f"{place_of_row(path, first_row + row)}, episode {name!r}")
        return {schema.PIXELS: pixels, schema.ACTION: action, **others}

    def _recording(self, name: str) -> Path:
        if (self.folder / name).is_dir():
            return self.folder / name
        return next(
            p for p in self.folder.iterdir() if p.stem == name and p.suffix.lower() in frame_files.VIDEO_SUFFIXES
        )

    def _rows(self, name: str) -> tuple[Path, Columns, int]:
        """The table with the actions of `name`, those of its columns' rows that are its own, and the first of them."""
        for suffix in TABLE_SUFFIXES:
            if (own := self.folder / f"{name}{suffix}").is_file():
                return own, dict(read_table(own)), 0
        for suffix in TABLE_SUFFIXES:
            if (common := self.folder / f"{COMMON_TABLE}{suffix}").is_file():
                return common, *_rows_of(common, name)
        raise InputError(
            f"{self.folder}: episode {name!r} has no actions. Expected {name}.csv, {name}.parquet, actions.csv or "
            f"actions.parquet there."
        )


def check_actions(action: np.ndarray, place: Callable[[int], str]) -> None:
    """Refuse an infinite action, and a missing one before the last row; `place` names a row."""
    row = row_without_action(action)
    if row is not None:
        raise InputError(
            f"{place(row)}: the action is {action[row].tolist()}; only the last row of an episode may be without one."
        )


def checked_episode(
    place: str, pixels: np.ndarray, columns: Columns, left_out: Collection[str]
) -> dict[str, np.ndarray]:
    """One episode with actions as rows of float32, and the other columns of numbers that are not `left_out`."""
    if schema.ACTION not in columns:
        raise InputError(f"{place}: there is no column {schema.ACTION!r}; it has {', '.join(columns) or 'none'}.")
    action = columns[schema.ACTION]
    if action.dtype.kind not in "biuf":
        raise InputError(f"{place}: numbers were expected in the column 'action', found {action.dtype}.")
    if len(action) != len(pixels):
        raise InputError(f"{place}: {len(pixels)} frames for {len(action)} rows.")
    action = action.reshape(len(action), -1).astype(np.float32)
    check_actions(action, lambda row: f"{place}, row {row}")
    left_out = {schema.ACTION, *left_out}
    others = {name: values for name, values in columns.items() if name not in left_out and values.dtype.kind in "biuf"}
    return {schema.PIXELS: pixels, schema.ACTION: action, **others}


def _rows_of(path: Path, name: str) -> tuple[Columns, int]:
    columns = read_table(path)
    if EPISODE not in columns:
        raise InputError(f"{path}: expected a column 'episode' with the names, found {', '.join(columns)}.")
    rows = np.flatnonzero(columns[EPISODE].astype(str) == name)
    if len(rows) == 0:
        raise InputError(f"{path} has no rows for episode {name!r}. Add them, or remove the recording.")
    if rows[-1] - rows[0] + 1 != len(rows):
        gap = int(rows[np.flatnonzero(np.diff(rows) > 1)[0]]) + 1
        raise InputError(f"{place_of_row(path, gap)}: episode {name!r} is interrupted by another. Sort the table.")
    return {key: values[rows] for key, values in columns.items()}, int(rows[0])


def _two_dimensional(path: Path, name: str, values: np.ndarray, first_row: int) -> np.ndarray:
    if values.ndim == 2 and values.dtype.kind in "biuf":
        return values
    return as_numbers(path, name, values, first_row)[:, None]


def _check_order(path: Path, frames: np.ndarray | None, first_row: int) -> None:
    if frames is None:
        return
    numbers = as_numbers(path, FRAME, frames, first_row)
    wrong = numbers != np.arange(len(numbers))
    if wrong.any():
        row = int(wrong.argmax())
        found = f"{numbers[row]:g} instead of {row}"
        raise InputError(
            f"{place_of_row(path, first_row + row)}, column 'frame': {found}. Sort the rows, fill the gaps."
        )


def _one_more(values: np.ndarray) -> np.ndarray:
    """`values` with a last row in which nothing is known."""
    values = values if values.dtype.kind == "f" else values.astype(np.float64)
    return np.concatenate([values, np.full((1, *values.shape[1:]), np.nan, values.dtype)])


def _is_episode(path: Path) -> bool:
    if path.name.startswith("."):
        return False
    if path.is_dir():
        return bool(frame_files.image_files(path))
    return path.suffix.lower() in frame_files.VIDEO_SUFFIXES


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "nothing"


def read_table(path: Path) -> Columns:
    """The columns of a table by name."""
    return _read_table(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)  # the latest one, since all its episodes are read in a row
def _read_table(path: Path, modified_ns: int) -> Columns:
    return _read_csv(path) if path.suffix.lower() == ".csv" else parquet_columns(path)


def place_of_row(path: Path, row: int) -> str:
    """Where row `row` (from 0) of a table is found: the line of a CSV file, which has a header; else the row."""
    return f"{path}, line {row + 2}" if path.suffix.lower() == ".csv" else f"{path}, row {row}"


def _read_csv(path: Path) -> Columns:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text ({error}). Save it as CSV in UTF-8.") from None
    names = [name.strip() for name in header]
    named = {i: name for i, name in enumerate(names) if name}  # others are counters that table programs put first
    if not rows or len(set(named.values())) != len(named):
        raise InputError(f"{path}: a header with distinct names and rows below it were expected, found {header}.")
    rows = [row for row in rows if row]  # a last line without anything is no row
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise InputError(f"{place_of_row(path, i)}: {len(row)} values under {len(names)} names. Complete the line.")
    return {name: np.array([row[i].strip() for row in rows]) for i, name in named.items()}


def parquet_columns(path: Path, episode: int | None = None) -> Columns:
    """The columns of a Parquet file that hold numbers, text or images; of rows with this `episode_index` only."""
    parquet, arrow = required("pyarrow.parquet", path), required("pyarrow", path)
    if not path.is_file():
        raise InputError(f"{path} does not exist. Restore the file and repeat the command.")
    try:
        _check_size(path, parquet.read_metadata(path))
        filters = None if episode is None else [("episode_index", "=", episode)]
        # Not as a data set: folders named `name=value` on the way to the file are no columns of it.
        table = parquet.read_table(path, filters=filters, partitioning=None)
        return {name: as_array(table.column(name)) for name in table.column_names}
    except InputError:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is no text
        raise InputError(f"{path}: not a Parquet file that can be read ({error}). Replace it.") from None


MOST_TABLE_BYTES = 2**30
"""What a table may take in memory, or more where the file is large itself: a small one can declare any number of
rows."""
_MOST_COMPRESSION = 1000


def _check_size(path: Path, declared: Any) -> None:
    """Refuse more rows than the file can hold, before memory is taken for them."""
    least = 8 * declared.num_rows * max(1, declared.num_columns)
    if least > max(MOST_TABLE_BYTES, _MOST_COMPRESSION * path.stat().st_size):
        size = f"{path.stat().st_size:,} bytes"
        raise InputError(f"{path}: {declared.num_rows:,} rows are declared in a file of {size}. Replace it.")


def as_array(column: Any) -> np.ndarray:
    """An Arrow column: numbers as they are, lists of equal length as rows; everything else as objects."""
    values = column.to_pylist()
    if values and isinstance(values[0], list):
        try:
            return np.array([[np.nan if v is None else v for v in row] for row in values])
        except (ValueError, TypeError):
            return np.fromiter(values, dtype=object, count=len(values))
    array: np.ndarray = column.to_numpy()
    return array


def as_numbers(path: Path, name: str, values: np.ndarray, first_row: int = 0) -> np.ndarray:
    """`values` of column `name` as float64; an empty cell is NaN, other text is refused by its row."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    numbers = np.empty(len(values))
    for i, value in enumerate(values):
        try:
            numbers[i] = np.nan if value is None or value == "" else float(value)
        except (TypeError, ValueError):
            where = place_of_row(path, first_row + i)
            raise InputError(f"{where}, column {name!r}: a number was expected, found {str(value)!r}.") from None
    return numbers


def are_numbers(values: np.ndarray) -> bool:
    """Whether an extra column can be stored."""
    if values.dtype.kind in "biuf":
        return True
    try:
        _ = [float(value) for value in values if value not in ("", None)]
    except (TypeError, ValueError):
        return False
    return values.dtype.kind in "UO"
