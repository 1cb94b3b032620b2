"""Builds C sources on first use, where the machine has a C compiler, into the user's cache folder."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_FLAGS = ("-O3", "-fPIC", "-shared")


class NativeUnavailableError(RuntimeError):
    """Why this machine cannot use the C path."""


@cache
def load_library(source: Path, flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library compiled from `source`, with `flags` besides the usual ones; NativeUnavailableError says why not.

    It is built anew when the source, a header beside it, the compiler, the flags or the processor change.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NativeUnavailableError("no C compiler was found")
    native = "-mcpu=native" if platform.machine() in {"arm64", "aarch64"} else "-march=native"
    command = (compiler, *_FLAGS, native, *flags)
    texts = [file.read_text(encoding="utf-8") for file in (source, *sorted(source.parent.glob("*.h")))]
    recipe = "\n".join((*texts, *command, platform.machine(), _processor()))
    built = _cache_folder() / f"{source.stem}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.so"
    if not built.exists():
        _compile(command, source, built)
    try:
        return ctypes.CDLL(str(built))
    except OSError as error:
        raise NativeUnavailableError(f"the compiled library {built} does not load: {error}") from error


def _compile(command: tuple[str, ...], source: Path, built: Path) -> None:
    with tempfile.TemporaryDirectory(dir=built.parent) as folder:
        fresh = Path(folder) / built.name
        try:
            done = subprocess.run(
                [*command, str(source), "-o", str(fresh), "-lm"], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise NativeUnavailableError(f"the C compiler {command[0]} does not start: {error}") from error
        if done.returncode != 0:
            raise NativeUnavailableError(f"{command[0]} failed: {done.stderr.strip()[:500]}")
        fresh.replace(built)  # atomic: processes that build at the same time do not see each other's halves


def _cache_folder() -> Path:
    """The user's cache folder, or a private temporary one where it cannot be written."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "alewm"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            return home
    except OSError:
        return Path(tempfile.mkdtemp(prefix="alewm-"))


def _processor() -> str:
    """What `-march=native` depends on: a shared home folder may serve machines of several kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
