"""Builds and calls the C version of `recurrence`, where the machine has a C compiler.

The library is compiled once per machine into the user's cache folder. Calls release the interpreter, so the groups are
shared among as many threads as torch uses; a group is never split, which makes the result independent of their number.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch

from alewm.shapes import Float, Tensor

_SOURCE = Path(__file__).with_name("characteristic_function.c")
_FLAGS = ("-O3", "-fno-math-errno", "-fPIC", "-shared")
_MAX_KNOTS = 64  # the size of the source's stack buffers


class NativeUnavailableError(RuntimeError):
    """Why this machine cannot use the C path."""


def forward(
    x: Float[Tensor, "G N P"], weight: Float[Tensor, "G N"], spacing: float, num_knots: int
) -> tuple[Float[Tensor, "G Q P"], Float[Tensor, "G Q P"]]:
    """The same as `recurrence.forward`, for contiguous float32 tensors on a CPU."""
    groups, samples, projections = x.shape
    real = x.new_empty(groups, num_knots, projections)
    imaginary = torch.empty_like(real)
    _over_groups(
        library().characteristic_function_forward,
        (x, weight, real, imaginary),
        (samples, projections, num_knots, spacing),
    )
    return real, imaginary


def backward(
    x: Float[Tensor, "G N P"],
    weight: Float[Tensor, "G N"],
    spacing: float,
    grad_real: Float[Tensor, "G Q P"],
    grad_imaginary: Float[Tensor, "G Q P"],
) -> tuple[Float[Tensor, "G N P"], Float[Tensor, "G N"]]:
    """The same as `recurrence.backward`, for contiguous float32 tensors on a CPU."""
    grad_x, grad_weight = torch.empty_like(x), torch.empty_like(weight)
    _over_groups(
        library().characteristic_function_backward,
        (x, weight, grad_real, grad_imaginary, grad_x, grad_weight),
        (x.shape[1], x.shape[2], grad_real.shape[1], spacing),
    )
    return grad_x, grad_weight


def _over_groups(function: Callable[..., None], tensors: tuple[Tensor, ...], sizes: tuple[int | float, ...]) -> None:
    groups = tensors[0].shape[0]
    num_threads = min(torch.get_num_threads(), groups)

    def run(first: int, last: int) -> None:
        function(*(tensor[first:last].data_ptr() for tensor in tensors), last - first, *sizes)

    if num_threads <= 1:
        run(0, groups)
        return
    edges = [groups * thread // num_threads for thread in range(num_threads + 1)]
    list(_threads(num_threads, os.getpid()).map(run, edges[:-1], edges[1:]))


@cache
def _threads(num_threads: int, process: int) -> ThreadPoolExecutor:
    """A pool of this process's own: a forked child must not wait for its parent's threads."""
    del process
    return ThreadPoolExecutor(num_threads, thread_name_prefix="alewm-native")


@cache
def library() -> ctypes.CDLL:
    """The compiled library; raises NativeUnavailableError with the reason where there is none."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NativeUnavailableError("no C compiler was found")
    flags = (*_FLAGS, "-mcpu=native" if platform.machine() in {"arm64", "aarch64"} else "-march=native")
    recipe = "\n".join((_SOURCE.read_text(), compiler, *flags, platform.machine(), _processor()))
    built = _cache_folder() / f"characteristic_function-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.so"
    if not built.exists():
        _compile(compiler, flags, built)
    try:
        loaded = ctypes.CDLL(str(built))
    except OSError as error:
        raise NativeUnavailableError(f"the compiled library {built} does not load: {error}") from error
    pointers: list[Any] = [ctypes.c_void_p]
    sizes: list[Any] = [ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_int, ctypes.c_float]
    loaded.characteristic_function_forward.argtypes = [*pointers * 4, *sizes]
    loaded.characteristic_function_forward.restype = None
    loaded.characteristic_function_backward.argtypes = [*pointers * 6, *sizes]
    loaded.characteristic_function_backward.restype = None
    return loaded


def why_not(x: Tensor, num_knots: int) -> str | None:
    """The reason for which `x` cannot take the C path here, or None if it can."""
    if x.device.type != "cpu":
        return f"the tensors are on {x.device.type}"
    if x.dtype != torch.float32:
        return f"the tensors are {x.dtype}"
    if num_knots > _MAX_KNOTS:
        return f"more than {_MAX_KNOTS} knots"
    try:
        library()
    except NativeUnavailableError as error:
        return str(error)
    return None


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
