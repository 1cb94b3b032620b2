"""Read and write files safely: a kill never leaves half a file, and a damaged file is named.

A file is written under a draft name, flushed to the disk, and then renamed. A killed process leaves its draft behind.
The next process that writes to the same folder removes it. The lock on a draft says whether its process still lives.
"""

import errno
import json
import math
import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from alewm.errors import InputError


def natural_order(name: str) -> list[tuple[int, str]]:
    """A key for sorting names, numbers in them by value: frame 10 comes after frame 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]


_DRAFT = ".alewm-partial"
"""Suffix of draft files; no other file has it."""


def write_text(path: Path, text: str) -> None:
    """Replaces `path` by `text` in one step: readers see the old file or the new one, never a part."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Replaces `path` by `content` in one step; its permissions are `mode`, or follow the umask."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_drafts(path.parent)
        with _new_draft(path.parent) as file:
            draft = Path(file.name)
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                if mode is not None:
                    draft.chmod(mode)
                if sys.platform == "win32":  # no open file can be renamed there
                    file.close()
                draft.replace(path)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
        flush_folder(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn system errors inside the block into an `OSError` that names `path`.

    A failed write names no file, a draft is not what was asked for, and HDF5 and safetensors have the system's error
    number only in the text of exceptions of their own.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(path)
            del error.filename2  # None would be a second name in the message
            raise
        if number := _error_number(error):
            raise OSError(number, os.strerror(number), str(path)) from error
        raise


def _error_number(error: Exception) -> int | None:
    found = re.search(r"\b(?:errno = |os error )(\d+)", str(error))
    return int(found[1]) if found else None


def remove_drafts(folder: Path) -> None:
    """Removes what killed processes left in `folder` by `write_bytes`; drafts of living ones stay."""
    with os.scandir(folder) as entries:
        drafts = [Path(entry.path) for entry in entries if entry.name.startswith(".") and entry.name.endswith(_DRAFT)]
    for draft in drafts:
        with suppress(OSError):  # another process was faster, or it is another user's
            descriptor = os.open(draft, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
            try:
                if try_lock(descriptor):
                    draft.unlink()
            finally:
                os.close(descriptor)


def _new_draft(folder: Path) -> BinaryIO:
    while True:
        path = folder / f".{secrets.token_hex(6)}{_DRAFT}"
        file = path.open("xb")
        if try_lock(file.fileno()) is not False and is_still_at(path, file.fileno()):
            return file
        file.close()  # another process took it for an abandoned one before it was locked


def try_lock(descriptor: int) -> bool | None:
    """Whether this process has the open file for itself now; None where no locks exist (Windows, some networks).

    The operating system lets go of the lock when the process ends, however that happens.
    """
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def open_unlinked(path: str | Path, flags: int) -> int:
    """A descriptor of `path`, an `opener` for `open`; a symbolic link is refused.

    For files that are written in place under a known name: in a folder from others, a link of that name may lead to any
    file of the user.
    """
    try:
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise InputError(f"{path} is a symbolic link, which is not followed. Remove the link.") from None


def inside(path: Path, folder: Path) -> Path:
    """`path`, refused where links lead out of `folder`: what is shown or shared comes from the folder itself.

    The Hub's cache is an exception: its folders hold links into the folder `blobs` beside them.
    """
    found, homes = path.resolve(), [folder.resolve()]
    if homes[0].parent.name == "snapshots":
        homes.append(homes[0].parents[1] / "blobs")
    if not any(found.is_relative_to(home) for home in homes):
        raise InputError(f"{path} is a link out of {folder}, to {found}. Copy the file there, or remove the link.")
    return path


def is_still_at(path: Path, descriptor: int) -> bool:
    """Whether `path` is the open file, not one that took its place."""
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def flush_in_place(path: Path, descriptor: int) -> None:
    """Flush the open file that is written under a known name; one that is no longer at `path` is refused.

    Whoever moves or deletes it may begin another one there, which is not ours to name or to remove.
    """
    os.fsync(descriptor)
    if not is_still_at(path, descriptor):
        raise InputError(
            f"{path} was moved or deleted while it was written. What is written from now on would be lost. Repeat the "
            f"command; if the unfinished files are elsewhere now, repeat it there to continue them."
        )


def flush_folder(path: Path) -> None:
    """Flush a folder: before that, a power cut may undo a rename or removal."""
    if sys.platform == "win32":  # where folders cannot be opened
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of file systems that do this by themselves
            raise
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """`value` as indented JSON; NaN and infinities are refused, since JSON has none."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def parse_json(text: str | bytes, *, allow_nan: bool = False) -> Any:
    """The JSON value in `text`; whatever is wrong with it is a `ValueError`, NaN and infinity too unless allowed."""
    try:
        if allow_nan:
            return json.loads(text)
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if _HALF_CHARACTER.search(text if isinstance(text, str) else text.decode()):
            json.dumps(value, ensure_ascii=False).encode()  # half of one alone cannot be written, as a file's name say
        return value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError(f"{digits} is too large")
    return value


def read_json(path: Path) -> Any:
    """The JSON value in `path`; a damaged file gets a message that names it and the place."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path, error) from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors from unexpected values of `path` inside the block into an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except (TypeError, KeyError, IndexError, AttributeError, ValueError, OverflowError, RuntimeError) as error:
        raise InputError(
            f"{path} holds other values than expected ({type(error).__name__}: {error}). Restore it from a copy."
        ) from error


def read_if_there(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, an empty one before it has been written; a damaged file is named as by `read_json`."""
    found = read_json(path) if path.is_file() else {}
    if not isinstance(found, dict):
        raise _damaged(path, f"a JSON object was expected, found {type(found).__name__}")
    return found


def _damaged(path: Path, problem: object) -> InputError:
    return InputError(
        f"{path} is damaged: {problem}. Nothing was changed. Remove the file to have it computed again, or restore it "
        f"from a copy."
    )


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, which nothing computes again; anything else is refused."""
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}). Restore it from a copy, or fetch it again.") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold a JSON object, found {type(found).__name__}.")
    return found


def check_new_folder(folder: Path) -> None:
    """Refuses a folder that is in use; nothing in it is touched."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already and is not empty. Give a new folder.")
