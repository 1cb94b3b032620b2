"""Where and with what a run was made."""

import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import alewm
from alewm.workers import num_available_cores

_PACKAGES = ("torch", "numpy", "h5py", "gymnasium", "safetensors", "mujoco", "dm_control", "ogbench", "pymunk")


def provenance() -> dict[str, Any]:
    """Versions, commit, hardware and command, as plain JSON values."""
    return {
        "alewm": alewm.__version__,
        "commit": _commit(),
        "command": _command(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": num_available_cores(),
        "processor": _processor(),
        "accelerator": _accelerator(),
    }


def _command() -> str:
    """What was typed, without the folders of this machine's installation."""
    program = Path(sys.argv[0]).name
    return shlex.join(["alewm" if program == "__main__.py" else program, *sys.argv[1:]])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the checkout this package runs from, with a mark if it has changes; None outside of one."""
    root = Path(alewm.__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
        dirty = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+changes" if dirty.stdout.strip() else "")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _accelerator() -> str | None:
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return "Apple GPU (MPS)" if torch.backends.mps.is_available() else None
