"""Choose a device by name, say what it lacks, and compute statistics in full precision."""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from alewm.errors import InputError
from alewm.shapes import Tensor

KINDS = ("cpu", "cuda", "mps")
"""Processors, NVIDIA and AMD GPUs, and the GPUs of Apple's machines."""


def find_device(name: str) -> torch.device:
    """The device called `name`; `auto` is a GPU where there is one (CUDA, then Apple's MPS), else the CPU."""
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if _num_devices(kind)))
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(
            f"Unknown device {name!r}; choose auto, cpu, cuda, mps or, for one of several, cuda:1."
        ) from None
    if device.type not in KINDS:
        raise InputError(f"The device must be auto, cpu, cuda or mps, got {name!r}.")
    if (device.index or 0) >= _num_devices(device.type):
        found = _num_devices(device.type)
        seen = f"{found} of {device.type}, counted from 0" if found else "none"
        raise InputError(
            f"The device {name!r} was asked for, but torch {torch.__version__} sees {seen}. Choose another, for "
            f"example cpu, or install a build of torch for this machine's GPU."
        )
    return device


def why_no_bfloat16(device: torch.device) -> str | None:
    """The reason networks cannot be computed in bfloat16 on `device`, or None."""
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return f"{torch.cuda.get_device_name(device)} has no bfloat16 arithmetic"
    if device.type == "mps":
        return "on Apple's GPUs only float32 is supported here"
    return None


def why_no_triton(device: torch.device) -> str | None:
    """The reason Triton kernels cannot run on `device`, or None."""
    if device.type != "cuda":
        return f"the device is a {device.type}"
    return None if _has_triton() else "triton is not installed"


@cache
def _has_triton() -> bool:
    # Cached: searching the installed packages is slow.
    return importlib.util.find_spec("triton") is not None


def simulation_device(device: torch.device) -> torch.device:
    """Where environments run beside a model on `device`: there, or on the CPU where it lacks float64."""
    return torch.device("cpu") if device.type == "mps" else device


def _num_devices(kind: str) -> int:
    if kind == "cuda":
        return torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    return 1


def at_least_float32(values: Tensor) -> Tensor:
    """`values` in float32, or in float64 if they came so."""
    return values if values.dtype == torch.float64 else values.float()


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No autocast and no TF32: a projection rounded to ten bits would shift the statistic by more than it measures."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def idle_threads(device: torch.device) -> Iterator[None]:
    """On a CPU, compute with no more threads than there are idle cores; OMP_NUM_THREADS, where set, decides instead.

    Threads of one operation wait for each other by spinning. On a machine that is busy with other work, a thread that
    is not scheduled keeps all others spinning, and planning takes ten times as long as with one thread.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(_useful_threads(device))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def busy_note(device: torch.device) -> str:
    """What to do where training has more threads than there are idle cores; empty elsewhere.

    Training does not choose by itself: another number of threads rounds otherwise, and a run that goes on would not end
    with the same weights.
    """
    useful, threads = _useful_threads(device), torch.get_num_threads()
    if useful == threads:
        return ""
    return (
        f"Other processes keep this machine busy: {threads} threads may train ten times slower than {useful}. To begin "
        f"with {useful}, stop this command and prefix it with OMP_NUM_THREADS={useful}."
    )


def _useful_threads(device: torch.device) -> int:
    """As many threads as torch has, or on a CPU as many as there are idle cores, if OMP_NUM_THREADS does not decide."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or "OMP_NUM_THREADS" in os.environ or not hasattr(os, "getloadavg"):
        return threads
    return max(1, min(threads, round((os.cpu_count() or 1) - os.getloadavg()[0])))
