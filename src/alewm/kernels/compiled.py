"""Builds C sources on first use, where the machine has a C compiler, and keeps the libraries for the next process.

`thread_pool` has threads for compiled code, which lets go of Python's lock.

Loading a library runs it, so one is only taken from a folder that nobody else can write. A kept library is a plain
file of this user's, and its name ends in the hash of its content: a damaged or foreign one is built anew. Where no
such folder can be had, every process builds its own library and leaves nothing behind.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing import parent_process
from pathlib import Path

from alewm.files import write_bytes

_FLAGS = ("-O3", "-fPIC", "-shared")
_HAS_OWNERS = hasattr(os, "geteuid")  # Windows has neither owners nor modes
_WRITTEN_BY_OTHERS, _USED_BY_OTHERS = (0o022, 0o077) if _HAS_OWNERS else (0, 0)


class NativeUnavailableError(RuntimeError):
    """Why this machine cannot use the C path."""


def thread_pool(num_threads: int, name: str) -> ThreadPoolExecutor:
    """The threads of this name, kept for the next call.

    Every process has its own: a forked child has none of its parent's threads, and would wait for them for ever.
    """
    return _thread_pool(num_threads, name, os.getpid())


@cache
def _thread_pool(num_threads: int, name: str, process: int) -> ThreadPoolExecutor:
    del process
    return ThreadPoolExecutor(num_threads, f"alewm-{name}")


def load_library(source: Path, flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library compiled from `source`, with `flags` besides the usual ones; NativeUnavailableError says why not.

    It is built anew when the source, a header beside it, the compiler, the flags or the processor change.
    """
    library = _library_or_reason(source, flags)
    if isinstance(library, str):
        raise NativeUnavailableError(library)
    return library


@cache
def _library_or_reason(source: Path, flags: tuple[str, ...]) -> ctypes.CDLL | str:
    """The library, or why there is none; cached, so that a failing compiler runs once."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return "no C compiler was found"
    native = "-mcpu=native" if platform.machine() in {"arm64", "aarch64"} else "-march=native"
    command = (compiler, *_FLAGS, native, *flags)
    texts = [file.read_text(encoding="utf-8") for file in (source, *sorted(source.parent.glob("*.h")))]
    recipe = "\n".join((*texts, *command, platform.machine(), _processor()))
    name = f"{source.stem}-{_hash(recipe.encode())[:16]}"
    folder = library = None
    try:
        folder = _cache_folder()
        library = _kept(folder, name)
    except (OSError, RuntimeError) as problem:  # RuntimeError: a user without a home
        _say_once(problem)
    try:
        return ctypes.CDLL(str(library)) if library else _build(command, source, folder, name)
    except NativeUnavailableError as reason:
        return str(reason)
    except OSError as error:
        return f"{source.name} cannot be compiled and loaded: {error}"


def _build(command: tuple[str, ...], source: Path, folder: Path | None, name: str) -> ctypes.CDLL:
    """The library, built in a private temporary folder and then moved to `folder`, if that can be written."""
    with tempfile.TemporaryDirectory(prefix="alewm-") as private:
        library = Path(private) / f"{name}.so"
        try:
            done = subprocess.run(
                [*command, str(source), "-o", str(library), "-lm"], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise NativeUnavailableError(f"the C compiler {command[0]} does not start: {error}") from error
        if done.returncode != 0:
            raise NativeUnavailableError(f"{command[0]} failed: {done.stderr.strip()[:500]}")
        if folder:
            content = library.read_bytes()
            kept = folder / f"{name}-{_hash(content)}.so"
            try:
                write_bytes(kept, content, mode=0o600)  # atomic, for processes that build at the same time
                library = kept
            except OSError as error:
                _say_once(error)
        return ctypes.CDLL(str(library))  # once it is loaded, its file may go


def _kept(folder: Path, name: str) -> Path | None:
    """The library `name` that an earlier process kept in `folder`; what is there in its place is removed."""
    for path in sorted(folder.glob(f"{name}-*.so")):
        if _is_own_and_whole(path):
            return path
        with suppress(OSError):
            path.unlink()
    return None


def _is_own_and_whole(path: Path) -> bool:
    """Whether this user wrote the file at `path`, nobody else can, and its content is the one in its name."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        is_plain = stat.S_ISREG(found.st_mode) and not found.st_mode & _WRITTEN_BY_OTHERS
        return is_plain and _is_own(found) and path.stem.endswith(f"-{_hash(file.read())}")


def _cache_folder() -> Path:
    """The folder for libraries, made if need be; an OSError says why there is none that only this user can write."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = (given if given.is_absolute() else Path.home() / ".cache") / "alewm" / "native"
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    _check_parents((missing[-1] if missing else folder).parent)
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)
    folder = folder.resolve()
    _check_parents(folder.parent)
    found = folder.stat()
    if not _is_own(found) or found.st_mode & _USED_BY_OTHERS:
        raise PermissionError(f"{folder} is not this user's alone ({_described(found)})")
    return folder


def _check_parents(folder: Path) -> None:
    """Refuses a place where another user could exchange `folder`, or a folder above it, for one of theirs.

    A group that is the user's own may write there, as it may in the homes of many systems.
    """
    for place in (folder.resolve(), *folder.resolve().parents):
        found = place.stat()
        by_others = found.st_mode & _WRITTEN_BY_OTHERS
        if _HAS_OWNERS and found.st_gid in (0, os.getegid()):
            by_others &= ~stat.S_IWGRP
        if not (_is_own(found) or found.st_uid == 0) or (by_others and not found.st_mode & stat.S_ISVTX):
            raise PermissionError(f"others can exchange what is in {place} ({_described(found)})")


def _is_own(found: os.stat_result) -> bool:
    return not _HAS_OWNERS or found.st_uid == os.geteuid()


def _described(found: os.stat_result) -> str:
    return f"owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_said: list[str] = []


def _say_once(problem: object) -> None:
    if not _said and parent_process() is None:  # printed once, not by every worker
        _said.append(str(problem))
        print(
            f"alewm: compiled code is not kept, so every process compiles it again: {problem}. Set XDG_CACHE_HOME to a "
            f"folder that only you can write.",
            file=sys.stderr,
        )


def _processor() -> str:
    """What `-march=native` depends on: a shared home folder may serve machines of several kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
