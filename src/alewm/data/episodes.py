"""Where the episodes of a file begin and end, from whichever index columns it has; and one episode in memory."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

from alewm.data import schema
from alewm.data.checks import fault
from alewm.errors import unknown_name

_REMEDY = "Collect or convert the file again."


@dataclass(frozen=True)
class EpisodeIndex:
    """First row and number of rows of every episode."""

    offsets: np.ndarray
    """int64 [E]."""

    lengths: np.ndarray
    """int64 [E]."""

    starts_at_one: bool
    """Whether the file lacks reset frames: its `step_idx` counts from 1, and its last actions are not actions."""

    @property
    def last_rows(self) -> np.ndarray:
        """The last row of every episode."""
        last: np.ndarray = self.offsets + self.lengths - 1
        return last


def build_index(path: Path, columns: Mapping[str, np.ndarray], num_rows: int) -> EpisodeIndex:
    """The index that `columns` (those of `schema.INDEX_COLUMNS` that the file has) agree on."""
    for name, column in columns.items():
        if column.ndim != 1 or column.dtype.kind not in "iu" or len(column) == 0:
            found = f"found {column.dtype} {list(column.shape)}."
            each = "episode" if name in (schema.LENGTH, schema.OFFSET) else "row"
            raise fault(path, name, None, f"one integer per {each} was expected, {found}", _REMEDY)
    episode_name = next((name for name in schema.EPISODE_SYNONYMS if name in columns), None)
    if schema.LENGTH in columns:
        lengths = _lengths(path, columns[schema.LENGTH], num_rows)
    elif episode_name is not None:
        lengths = _run_lengths(path, episode_name, columns[episode_name])
    else:
        wanted = f"{schema.LENGTH} (rows per episode) or {' / '.join(schema.EPISODE_SYNONYMS)} (episode of each row)"
        raise fault(path, schema.LENGTH, None, f"missing; {wanted} is needed to tell episodes apart.", _REMEDY)
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    if schema.OFFSET in columns:
        _check_equal(path, schema.OFFSET, columns[schema.OFFSET], offsets)
    if episode_name is not None and schema.LENGTH in columns:
        runs = np.repeat(columns[episode_name][offsets], lengths)
        _check_equal(path, episode_name, columns[episode_name], runs)
    steps = np.arange(num_rows) - np.repeat(offsets, lengths)
    starts_at_one = False
    if schema.STEP in columns:
        starts_at_one = bool(columns[schema.STEP][0] == 1)
        _check_equal(path, schema.STEP, columns[schema.STEP], steps + starts_at_one)
    return EpisodeIndex(offsets, lengths, starts_at_one)


def _lengths(path: Path, column: np.ndarray, num_rows: int) -> np.ndarray:
    lengths = column.astype(np.int64)
    if (lengths < 1).any():
        row = int((lengths < 1).argmax())
        raise fault(path, schema.LENGTH, row, f"an episode of {lengths[row]} rows.", _REMEDY)
    ends = np.cumsum(lengths)
    if ends[-1] != num_rows:
        row = min(int(np.searchsorted(ends, num_rows, side="right")), len(ends) - 1)
        problem = f"the episodes add up to {ends[-1]} rows, but {schema.PIXELS!r} has {num_rows}."
        raise fault(path, schema.LENGTH, row, problem, _REMEDY)
    return lengths


def _run_lengths(path: Path, name: str, episodes: np.ndarray) -> np.ndarray:
    starts = np.flatnonzero(np.concatenate([[True], episodes[1:] != episodes[:-1]]))
    _, first_seen = np.unique(episodes[starts], return_index=True)
    if len(first_seen) != len(starts):
        row = int(starts[np.setdiff1d(np.arange(len(starts)), first_seen)[0]])
        raise fault(path, name, row, f"episode {episodes[row]} continues after another one began.", _REMEDY)
    return np.diff(np.append(starts, len(episodes))).astype(np.int64)


def _check_equal(path: Path, name: str, found: np.ndarray, expected: np.ndarray) -> None:
    if found.shape != expected.shape:
        problem = f"{expected.shape[0]} entries were expected, found shape {list(found.shape)}."
        raise fault(path, name, None, problem, _REMEDY)
    wrong = found != expected
    if wrong.any():
        row = int(wrong.argmax())
        raise fault(path, name, row, f"{expected[row]} was expected, found {found[row]}.", _REMEDY)


FILM_HEIGHT = 160
"""About how many pixels high a notebook shows frames."""
FRAME_MILLISECONDS = 80


@dataclass(frozen=True, repr=False)
class Episode:
    """One recorded episode: `store[0].pixels`, `store[0].action`, `store[0]["state"]`."""

    number: int
    """Its place in the file."""
    columns: dict[str, np.ndarray]
    """All recorded columns by name; the frames are those that were drawn."""
    draw_every: int = 1
    """Steps between two frames."""

    @property
    def pixels(self) -> np.ndarray:
        """Frames, uint8 [frames, Y, X, 3]."""
        return self.columns[schema.PIXELS]

    @property
    def action(self) -> np.ndarray:
        """Actions, float32 [steps, action]; the last may be NaN, since nothing follows it."""
        return self.columns[schema.ACTION]

    def __getitem__(self, name: str) -> np.ndarray:
        """The column called `name`."""
        if name not in self.columns:
            raise unknown_name("column of the episode", name, self.columns)
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.action)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {list(values.shape)}" for name, values in self.columns.items())
        return f"Episode({self.number}, {len(self)} steps: {shown})"

    def _repr_html_(self) -> str:
        """The frames as a film, which is what a notebook shows."""
        film = base64.b64encode(_gif(self.pixels)).decode()
        return f'<img src="data:image/gif;base64,{film}" alt="frames"><p><code>{escape(repr(self))}</code></p>'


def _gif(frames: np.ndarray) -> bytes:
    scale = max(1, round(FILM_HEIGHT / frames.shape[1]))
    size = frames.shape[2] * scale, frames.shape[1] * scale
    pictures = [Image.fromarray(frame).resize(size, Image.Resampling.NEAREST) for frame in frames]
    buffer = io.BytesIO()
    pictures[0].save(buffer, "GIF", save_all=True, append_images=pictures[1:], duration=FRAME_MILLISECONDS, loop=0)
    return buffer.getvalue()
