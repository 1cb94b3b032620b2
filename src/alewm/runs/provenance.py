"""Where and with what a run was made, and the same without this machine's paths and name."""

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import alewm
from alewm.workers import num_available_cores

_ABSOLUTE = re.compile(r"(?P<before>^|[\s='\"(])(?:~|file:/)?/(?:[^\s'\"()]*/)?(?P<last>[^\s'\"()/]+)/?(?=$|[\s'\")])")


def portable(value: Any) -> Any:
    """The JSON value `value` with absolute paths cut to their last part and this machine's name left out."""
    if isinstance(value, Mapping):
        return {name: portable(content) for name, content in value.items()}
    if isinstance(value, list):
        return [portable(content) for content in value]
    return _portable_text(value) if isinstance(value, str) else value


def _portable_text(text: str) -> str:
    text = _ABSOLUTE.sub(r"\g<before>\g<last>", text)
    host = platform.node()
    # A name as short as "pc" may be part of any word, and identifies no machine.
    return re.sub(rf"\b{re.escape(host)}\b", "host", text) if len(host) > 3 and host != "localhost" else text


_PACKAGES = ("torch", "numpy", "h5py", "gymnasium", "safetensors", "mujoco", "dm_control", "ogbench", "pymunk")
_CODE = ("src", "lab")
"""Where the code is in a checkout."""
_COMMIT = re.compile("[0-9a-f]{40}")

CHANGES = "+changes"
"""The end of a commit whose code was changed before it ran."""


def provenance(command: str | None = None) -> dict[str, Any]:
    """Versions, commit, hardware and command, as plain JSON values.

    The command is the one that was typed, unless `command` names another: that of one run among many, for instance.
    """
    return {
        "alewm": alewm.__version__,
        "commit": code_commit(Path(alewm.__file__).resolve().parents[2]),
        "command": command or _command(),
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
    program = Path(sys.argv[0])
    # `python -m alewm_lab` is started by its __main__.py; its command is called alewm-lab.
    name = program.parent.name.replace("_", "-") if program.name == "__main__.py" else program.name
    return shlex.join([name, *sys.argv[1:]])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def clean_commit(made_with: Mapping[str, Any]) -> str | None:
    """The commit that has the code of a provenance; None where it is unknown or the code was changed since."""
    commit = made_with.get("commit")
    return commit if isinstance(commit, str) and _COMMIT.fullmatch(commit) else None


def code_commit(root: Path) -> str | None:
    """The commit of the checkout at `root`, with a mark if its code has changes; None where nothing tells.

    A copy of the tree without its history has the commit that the variable ALEWM_COMMIT names.
    """
    if not (root / ".git").exists():
        given = os.environ.get("ALEWM_COMMIT", "")
        return given if _COMMIT.fullmatch(given) else None
    try:
        head = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", *_CODE)  # a note or a figure beside it changes no number
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + (CHANGES if changed else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


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
