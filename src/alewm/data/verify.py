"""Reading every frame of a file once, so that damage is found before a long run meets it.

Files written here carry checksums and are checked whenever a loader opens them, at a few microseconds per frame. Files
from elsewhere must be decoded to be checked; that is done once, and remembered beside the file.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from alewm.data import schema
from alewm.data.frames import FrameSource, MappedFrames, open_frames
from alewm.data.sidecar import beside, read_sidecar, write_sidecar
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from alewm.progress import Progress
from alewm.workers import num_available_cores

_ROWS_PER_TASK = 100


def verify_columns(store: EpisodeStore) -> tuple[str, ...]:
    """The columns whose values were all compared with checksums now; damage is refused with file, column and rows.

    Frames of `pixels` are left to `verify_frames`, which reads them faster.
    """
    return tuple(name for name in store.stored_names if name != schema.PIXELS and store.check_column(name))


def verify_frames(store: EpisodeStore, *, decode: bool = True) -> bool:
    """Whether frames were read now (False: this very file was found sound before, or must be decoded and may not).

    A frame that differs from its checksum or cannot be decoded is refused with the file, the column and the row.
    Without `decode` only frames with checksums are checked. Decoding them all may take minutes, and shows a bar.
    """
    source = open_frames(store, range(store.num_episodes))  # which compares frames with their checksums
    if isinstance(source, MappedFrames) and source.has_checksums:
        return True
    if not decode:
        return False
    path = beside(store.path, "verified")
    status = store.path.stat()
    stamp = {"size": status.st_size, "modified_ns": status.st_mtime_ns, "fingerprint": store.fingerprint}
    if _holds(path, stamp):
        return False
    _decode_all(store, source)
    try:
        write_sidecar(path, stamp)
    except OSError:
        store.notes.append(f"{path} cannot be written: the frames of {store.path} will be checked again next time.")
    return True


def _decode_all(store: EpisodeStore, source: FrameSource) -> None:
    drawn = store.drawn_rows()

    def read(start: int) -> int:
        rows = drawn[start : start + _ROWS_PER_TASK]
        source.read(rows, np.empty((len(rows), *source.shape), dtype=np.uint8))
        return len(rows)

    with (
        Progress(f"checking {store.path}", len(drawn), "frames") as bar,
        ThreadPoolExecutor(num_available_cores()) as threads,
    ):
        for num_read in threads.map(read, range(0, len(drawn), _ROWS_PER_TASK)):
            bar.advance(num_read)


def _holds(path: Path, stamp: dict[str, Any]) -> bool:
    try:
        return read_sidecar(path, tuple(stamp)) == stamp
    except InputError:
        return False
