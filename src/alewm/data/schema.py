"""Names, dtypes and meaning of every column of an episode file.

A file is a set of flat tables at the root of one HDF5 file, one row per recorded environment step, episodes one after
the other. Row t holds what was seen at step t and the action *taken there*, which leads to row t + 1; an episode of n
steps has n + 1 rows, row 0 being the reset, and its last row has no action (NaN).

| dataset        | shape        | dtype   | meaning                                                            |
|----------------|--------------|---------|--------------------------------------------------------------------|
| `pixels`       | (N, Y, X, 3) | uint8   | the frame, RGB                                                     |
| `action`       | (N, A)       | float32 | the action taken at this row; NaN in the last row of an episode    |
| `step_idx`     | (N,)         | int64   | row number within the episode, from 0                              |
| `ep_idx`       | (N,)         | int32   | episode number (some files call it `episode_idx`, some have none)  |
| `ep_len`       | (E,)         | int32   | rows of each episode                                               |
| `ep_offset`    | (E,)         | int64   | first row of each episode                                          |
| `family`       | (N,)         | int64   | the demonstration an episode is a copy of, where there are copies  |
| anything else  | (N, ...)     | numeric | state of the simulator, as its name says                           |

Only `pixels`, `action` and a way to tell episodes apart are required of files from elsewhere.

Every column has checksums (`alewm.data.checks`). Files of versions 1 and 2 had them for frames only, in a column
`pixels_crc32`, which other tools took for images.

Where drawing is what takes time, a collector may draw the reset and every n-th step after it only (the attribute
`draw_every`). All rows are there then, but `pixels` has chunks for the drawn ones alone, and training windows start
there. To a program that does not know this, frames that were never drawn look black.
"""

import errno
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from alewm.config import ConfigType, from_dict
from alewm.errors import InputError
from alewm.files import parse_json, write_text

FILE_VERSION = 3
"""1: every row has a frame, and frames have checksums. 2: not every row has a frame. 3: every column has checksums."""

VERSION_ATTRIBUTE = "alewm_file_version"
ATTRIBUTES_ATTRIBUTE = "alewm_attributes"
"""JSON object in the file's root attributes: task, seed and whatever else the collector recorded."""

DRAW_EVERY = "draw_every"
"""Among those attributes: rows from one frame to the next within an episode; 1 where it is not said."""

FRAME_SKIP = "frame_skip"
"""Among those attributes: environment steps per latent step that the file was made for; open where it is not said."""

DRAWING, SHADOW_SIZE = "drawing", "shadow_size"
"""Among those attributes: who drew the frames of a simulated task, and how fine its shadow map was; where they are
missing, MuJoCo with its model's own (`alewm.envs.simulated`)."""

ENCODER_ATTRIBUTE = "alewm_encoder"
"""Text in the file's root attributes: what made the compressed streams. It changes no frame and no fingerprint."""

COLUMN_CHECKSUMS = "alewm_crc32"
"""Attribute of a column: the checksums of its values (`alewm.data.checks`)."""

TEXTS_CHECKSUM = "alewm_texts_crc32"
"""Number in the file's root attributes: CRC-32 of the two texts above."""

PIXELS = "pixels"
ACTION = "action"
STEP = "step_idx"
EPISODE = "ep_idx"
EPISODE_SYNONYMS = (EPISODE, "episode_idx")
LENGTH = "ep_len"
OFFSET = "ep_offset"
FAMILY = "family"
CHECKSUM_SUFFIX = "_crc32"
"""Of columns in files of versions 1 and 2: the checksums of a frame column."""

INDEX_COLUMNS = (STEP, *EPISODE_SYNONYMS, LENGTH, OFFSET)
"""Columns that the writer makes; those of a source are ignored."""


def draw_every_of(path: Path, attributes: Mapping[str, Any]) -> int:
    """What the `attributes` of the file `path` say of `DRAW_EVERY`; nonsense is refused."""
    every = attributes.get(DRAW_EVERY, 1)
    if not isinstance(every, int) or every < 1:
        raise InputError(f"{path} says that one of {every!r} rows was drawn, which is no number of rows.")
    return every


def frame_skip_of(path: Path, attributes: Mapping[str, Any]) -> int | None:
    """What the `attributes` of the file `path` say of `FRAME_SKIP`, if anything; nonsense is refused."""
    frame_skip = attributes.get(FRAME_SKIP)
    if frame_skip is not None and (not isinstance(frame_skip, int) or frame_skip < 1):
        raise InputError(f"{path} says that its frame skip is {frame_skip!r}, which is no number of steps.")
    return frame_skip


def holds_frames(dtype: np.dtype, shape: tuple[int, ...]) -> bool:
    """Whether a column of this kind holds images, `[rows, Y, X, 3]`."""
    return dtype == np.uint8 and len(shape) == 4 and shape[-1] == 3


def is_derived(name: str, columns: Iterable[str]) -> bool:
    """Whether column `name` follows from the other `columns`: an index, or the checksums of frames."""
    return name in INDEX_COLUMNS or (name.endswith(CHECKSUM_SUFFIX) and name.removesuffix(CHECKSUM_SUFFIX) in columns)


def sanitised(name: str) -> str:
    """`name` without the slashes that HDF5 would read as folders."""
    return name.strip("/").replace("/", "_")


def beside(data_path: str | Path, kind: str) -> Path:
    """The path of the sidecar `kind` of a data file: `two-room.h5` has `two-room.splits.json`."""
    data_path = Path(data_path)
    return data_path.with_name(f"{data_path.stem}.{kind}.json")


def write_sidecar(path: Path, values: dict[str, Any]) -> None:
    """Write `values` to `path` in one step, so that no reader ever sees half of them."""
    write_text(path, json.dumps(values, indent=1) + "\n")


@contextmanager
def kept_beside(data_path: Path) -> Iterator[None]:
    """Turn a failed write of a sidecar into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise InputError(
            f"The folder of {data_path} cannot be written, and what is decided once about a data file is kept beside "
            f"it. Make a link to the file in a folder of your own (ln -s) and give that as --data."
        ) from None


def read_sidecar(path: Path, kind: type[ConfigType]) -> ConfigType:
    """The object in `path` as a `kind`; one that lacks a field without a default is refused."""
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}); delete it to have it made anew.") from None
    try:
        return from_dict(kind, values if isinstance(values, dict) else {})
    except InputError as error:
        raise InputError(f"{path}: {error} Delete the file to have it made anew.") from None


def check_fingerprint(path: Path, found: str, expected: str, data_path: str | Path) -> None:
    """Refuse a sidecar that was made for other data."""
    if found != expected:
        raise InputError(
            f"{path} was made for data with fingerprint {found}, but {data_path} has {expected}. "
            f"Restore the data file it belongs to, or delete {path} to have it made anew."
        )
