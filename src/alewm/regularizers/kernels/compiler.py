"""Builds the C kernels on first use, where the machine has a C compiler, into the user's cache folder."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_name("prefix_mixture.c")
_FLAGS = ("-O3", "-fno-math-errno", "-fPIC", "-shared")


class NativeUnavailableError(RuntimeError):
    """Why this machine cannot use the C path."""


@cache
def library() -> ctypes.CDLL:
    """The compiled library; raises NativeUnavailableError with the reason where there is none."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NativeUnavailableError("no C compiler was found")
    flags = (*_FLAGS, "-mcpu=native" if platform.machine() in {"arm64", "aarch64"} else "-march=native")
    recipe = "\n".join((_SOURCE.read_text(), compiler, *flags, platform.machine(), _processor()))
    built = _cache_folder() / f"{_SOURCE.stem}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.so"
    if not built.exists():
        _compile(compiler, flags, built)
    try:
        return ctypes.CDLL(str(built))
    except OSError as error:
        raise NativeUnavailableError(f"the compiled library {built} does not load: {error}") from error


def _compile(compiler: str, flags: tuple[str, ...], built: Path) -> None:
    with tempfile.TemporaryDirectory(dir=built.parent) as folder:
        fresh = Path(folder) / built.name
        command = [compiler, *flags, str(_SOURCE), "-o", str(fresh), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise NativeUnavailableError(f"the C compiler {compiler} does not start: {error}") from error
        if done.returncode != 0:
            raise NativeUnavailableError(f"{compiler} failed: {done.stderr.strip()[:500]}")
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
