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

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from alewm.data import schema
from alewm.data.checks import row_without_action
from alewm.data.conversion import frames as frame_files
from alewm.data.conversion import tables
from alewm.data.conversion.frames import AS_RECORDED, FrameSize
from alewm.errors import InputError
from alewm.files import natural_order

COMMON_TABLE = "actions"
EPISODE, FRAME = "episode", "frame"


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
        found = [path for path in self.folder.iterdir() if path.suffix.lower() in tables.TABLE_SUFFIXES]
        for recording in map(self._recording, self.names):
            found += frame_files.image_files(recording) if recording.is_dir() else [recording]
        return {"format": "recordings", "digest": frame_files.digest_of(self.folder, found)}

    def __call__(self, seed: int, episodes: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
        """The episodes with these numbers; there is nothing for `seed` to decide."""
        for episode in episodes:
            yield self._episode(self.names[episode])

    def _episode(self, name: str) -> dict[str, np.ndarray]:
        recording = self._recording(name)
        read = frame_files.read_images if recording.is_dir() else frame_files.read_video
        pixels = read(recording, self.size)
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
            key: tables.as_numbers(path, key, values) if values.ndim == 1 else values
            for key, values in columns.items()
            if tables.are_numbers(values)
        }
        if num_rows < len(pixels):
            action, others = _one_more(action), {key: _one_more(values) for key, values in others.items()}
        check_actions(action, lambda row: f"{tables.place(path, first_row + row)}, episode {name!r}")
        return {schema.PIXELS: pixels, schema.ACTION: action, **others}

    def _recording(self, name: str) -> Path:
        if (self.folder / name).is_dir():
            return self.folder / name
        return next(
            p for p in self.folder.iterdir() if p.stem == name and p.suffix.lower() in frame_files.VIDEO_SUFFIXES
        )

    def _rows(self, name: str) -> tuple[Path, tables.Columns, int]:
        """The table with the actions of `name`, those of its columns' rows that are its own, and the first of them."""
        for suffix in tables.TABLE_SUFFIXES:
            if (own := self.folder / f"{name}{suffix}").is_file():
                return own, dict(tables.read_table(own)), 0
        for suffix in tables.TABLE_SUFFIXES:
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
    place: str, pixels: np.ndarray, columns: tables.Columns, left_out: Collection[str]
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


def _rows_of(path: Path, name: str) -> tuple[tables.Columns, int]:
    columns = tables.read_table(path)
    if EPISODE not in columns:
        raise InputError(f"{path}: expected a column 'episode' with the names, found {', '.join(columns)}.")
    rows = np.flatnonzero(columns[EPISODE].astype(str) == name)
    if len(rows) == 0:
        raise InputError(f"{path} has no rows for episode {name!r}. Add them, or remove the recording.")
    if rows[-1] - rows[0] + 1 != len(rows):
        gap = int(rows[np.flatnonzero(np.diff(rows) > 1)[0]]) + 1
        raise InputError(f"{tables.place(path, gap)}: episode {name!r} is interrupted by another. Sort the table.")
    return {key: values[rows] for key, values in columns.items()}, int(rows[0])


def _two_dimensional(path: Path, name: str, values: np.ndarray, first_row: int) -> np.ndarray:
    if values.ndim == 2 and values.dtype.kind in "biuf":
        return values
    return tables.as_numbers(path, name, values, first_row)[:, None]


def _check_order(path: Path, frames: np.ndarray | None, first_row: int) -> None:
    if frames is None:
        return
    numbers = tables.as_numbers(path, FRAME, frames, first_row)
    wrong = numbers != np.arange(len(numbers))
    if wrong.any():
        row = int(wrong.argmax())
        found = f"{numbers[row]:g} instead of {row}"
        raise InputError(
            f"{tables.place(path, first_row + row)}, column 'frame': {found}. Sort the rows, fill the gaps."
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
