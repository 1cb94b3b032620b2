"""One writer per run folder: two processes that train into one would mix their checkpoints."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alewm.errors import InputError


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """The block is refused while another process is in one for the same folder.

    The operating system holds the lock and drops it when its process ends, however that happens, so that nothing is
    left to clean up after a kill. Where locks of this kind do not exist (Windows), nothing is checked.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"Another process is writing to {folder}. Wait until it has finished, or give another folder."
            ) from None
        yield
