"""One writer per folder: two processes that train into one would mix their checkpoints."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alewm.errors import InputError
from alewm.files import check_new_folder, flush_folder, is_still_at, try_lock

_LOCK = ".lock"


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """The block is refused while another process is in one for the same folder.

    The operating system holds the lock and drops it when its process ends, however that happens, so that nothing is
    left to clean up after a kill. Where locks of this kind do not exist (Windows), nothing is checked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _LOCK
    # Never through a link: the lock of a folder that came from others is not to touch another file.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        if try_lock(descriptor) is False or not is_still_at(path, descriptor):
            raise InputError(
                f"Another process is writing to {folder}. Wait until it has finished, or give another folder."
            )
        yield
    finally:
        os.close(descriptor)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `out` when the block ends; a folder in use is refused.

    Until then it is hidden beside `out`, so that a kill leaves nothing under that name. The next call removes what was
    left there, unless its process still lives.
    """
    check_new_folder(out)
    out = out.absolute()
    partial = out.with_name(f".{out.name}.partial")
    with only_writer(partial):
        _empty(partial)
        try:
            yield partial
            for path in (path for path in partial.rglob("*") if path.is_file()):
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        (partial / _LOCK).unlink()
        if out.exists():
            out.rmdir()  # empty, as was checked
        partial.replace(out)
    flush_folder(out.parent)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()
