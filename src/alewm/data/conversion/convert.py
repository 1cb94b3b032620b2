"""Recordings of any of the known formats, converted into one file."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from alewm.data import schema
from alewm.data.codec import Compression
from alewm.data.collect import Collected, EpisodeSource, RecordedEpisodes, collect_watched
from alewm.data.conversion.frames import AS_RECORDED, FrameSize
from alewm.data.conversion.lerobot import LeRobotEpisodes, is_lerobot
from alewm.data.conversion.recordings import Recordings
from alewm.data.conversion.stable_worldmodel import (
    ColumnFolderEpisodes,
    LanceEpisodes,
    is_column_folder,
    lance_table,
)
from alewm.data.store import EpisodeStore
from alewm.data.windows import WindowShape
from alewm.data.writer import journal_path
from alewm.errors import InputError
from alewm.shapes import FRAME_SKIP
from alewm.workers import num_processes

Format = Literal["auto", "recordings", "lerobot", "stable-worldmodel"]
Source = Recordings | LeRobotEpisodes | LanceEpisodes | ColumnFolderEpisodes


def open_source(
    path: Path, kind: Format = "auto", *, camera: str | None = None, size: FrameSize = AS_RECORDED
) -> Source:
    """The episodes in `path`, in the format it is found to have."""
    if not path.is_dir():
        raise InputError(
            f"{path} is no folder. Give the folder of a LeRobot data set, a Lance table or a folder of columns that "
            f"stable-worldmodel wrote, a folder of videos and their actions, a data set of the Hub (OWNER/NAME), or a "
            f"data file."
        )
    if kind == "lerobot" or (kind == "auto" and is_lerobot(path)):
        return LeRobotEpisodes(path, camera, size)
    if kind in ("auto", "stable-worldmodel"):
        if (table := lance_table(path)) is not None:
            return LanceEpisodes(table, camera, size)
        if is_column_folder(path):
            return ColumnFolderEpisodes(path, camera, size)
        if kind == "stable-worldmodel":
            raise InputError(f"{path} is neither a Lance table nor a folder of columns with ep_len.npz.")
    if camera is not None:
        raise InputError(f"--camera chooses among the cameras of a data set; {path} is a folder of recordings.")
    return Recordings(path, size)


def convert(
    source: Source,
    out: Path,
    *,
    repository: str | None = None,
    task: str | None = None,
    fps: float | None = None,
    frame_skip: int | None = None,
    num_episodes: int | None = None,
    jobs: int = 0,
) -> tuple[Collected, list[str]]:
    """What was added to `out` now, and notes for the person who asked.

    As with collecting, a repeated call continues after an interruption, a complete file is left as it is, and one made
    from other recordings or with other settings is refused. `fps` is stored where the recordings do not know theirs,
    and `repository` where they came from the Hub.
    """
    known = source.num_episodes
    wanted = known if num_episodes is None else num_episodes
    if not 1 <= wanted <= known:
        raise InputError(f"{source.folder} has {known} episodes; --episodes is from 1 to that, got {wanted}.")
    if fps is not None and not 0 < fps < math.inf:
        raise InputError(f"--fps is a positive number of rows per second, got {fps:g}.")
    if frame_skip is not None and frame_skip < 1:
        raise InputError(f"--frame-skip is a number of rows, 1 or more; got {frame_skip}.")
    rate = fps or source.fps
    attributes: dict[str, Any] = {"source": source.identity(), "image_size": source.size.image_size}
    attributes |= {"repository": repository} if repository is not None else {}
    attributes |= {"task": task} if task is not None else {}
    attributes |= {"fps": rate} if rate is not None else {}
    attributes |= {schema.FRAME_SKIP: frame_skip} if frame_skip is not None else {}
    attributes |= {"fit": source.size.fit} if source.size.image_size is not None else {}
    made = collect_watched(
        _TellsWhatToDelete(source, journal_path(out)),
        out,
        f"converting {source.folder}",
        num_episodes=wanted,
        num_workers=min(num_processes(jobs), wanted),
        seed=0,
        attributes=attributes,
        compression=Compression("zlib"),  # the encoder of frames with texture, as videos have
        episodes_per_task=1,  # an episode is a video to decode: long enough to be worth keeping
    )
    return made, _notes(rate, WindowShape(frame_skip=frame_skip or FRAME_SKIP))


def data_file_of(path: Path) -> Path:
    """`path`; of a Lance table, the data file that is made of it once, beside it, with frames at their stored size."""
    table = lance_table(path) if path.is_dir() else None
    if table is None:
        return path
    out = table.with_suffix(".h5")
    made, _ = convert(LanceEpisodes(table), out)
    print(f"{table} is read from {out}: {made.in_words(out)}", file=sys.stderr)
    return out


def copy_file(path: Path, out: Path, jobs: int) -> tuple[Collected, list[str]]:
    """What was added to `out`, a copy of the data file `path` in the present layout, and notes for who asked.

    Frames, actions and the other columns of numbers stay as they are, and with them the fingerprint; what the collector
    recorded is kept too.
    """
    with EpisodeStore.open(path) as store:
        attributes = {name: value for name, value in store.attributes.items() if name not in _WRITTEN_ANEW}
        if store.version is None:
            attributes["source"] = {"file": path.name, "fingerprint": store.fingerprint}
        encoder = "alewm" if str(store.encoder).startswith("alewm") else "zlib"
        left_out = [name for name in store.column_names if name not in store.numeric_names]
        num_episodes, seed = store.num_episodes, store.attributes.get("seed", 0)
    made = collect_watched(
        RecordedEpisodes(path),
        out,
        f"copying {path}",
        num_episodes=num_episodes,
        num_workers=min(num_processes(jobs), num_episodes),
        seed=seed,
        attributes=attributes,
        compression=Compression(encoder),
    )
    return made, [f"Left out, since they hold no numbers for each row: {', '.join(left_out)}."] if left_out else []


_WRITTEN_ANEW = ("seed", "num_episodes", "filter")
"""Attributes that collecting writes itself."""


@dataclass(frozen=True)
class _TellsWhatToDelete:
    """The episodes of `source`; refusing one, it names the `journal` that repaired recordings do not continue."""

    source: EpisodeSource
    journal: Path

    def __call__(self, seed: int, episodes: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
        for episode in episodes:
            try:
                yield from self.source(seed, [episode])
            except InputError as error:
                if episode == 0:  # none is finished: whatever is changed, the command can be repeated
                    raise
                raise InputError(
                    f"{error}\nThe episodes before it are kept in {self.journal} and the .partial file beside it. If "
                    f"you change the recordings or a setting, delete both: all episodes are then converted anew."
                ) from None


def _notes(rate: float | None, shape: WindowShape) -> list[str]:
    if rate is None:
        return []
    return [
        f"At {rate:g} rows per second the {shape.num_frames} frames of a training window, {shape.frame_skip} rows "
        f"apart, span {shape.num_actions / rate:.2f} s.",
        "--frame-skip sets how many rows apart they are.",
    ]
