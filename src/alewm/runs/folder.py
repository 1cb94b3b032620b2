"""The run folder: `config.json`, `provenance.json`, `metrics.jsonl`, `checkpoints/`, `result.json`.

Repeating a command with the same config continues in its folder. A different config is refused with the difference,
and nothing in the folder is touched. One process writes to a folder at a time. Tensors are safetensors with a digest,
so loading a file never runs code.
"""

import hashlib
import json
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

import alewm
from alewm.config import differences
from alewm.errors import MOST_SHOWN, InputError
from alewm.files import (
    check_new_folder,
    flush_folder,
    is_still_at,
    open_unlinked,
    parse_json,
    read_if_there,
    read_json,
    try_lock,
    write_bytes,
    write_json,
)
from alewm.shapes import Tensor
from alewm.workers import num_available_cores

_DIGEST = "sha256"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Writes named tensors in one step, with `metadata` and their digest in the file's header."""
    entries = {**(metadata or {}), _DIGEST: _digest(tensors, metadata or {})}
    write_bytes(path, _with_metadata(save(dict(tensors)), entries))


def load_tensors(path: Path, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and metadata of `path`; damage is refused with `remedy`. Files without a digest are trusted."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read ({error}); {remedy}") from error
    # Where the name of the digest itself is damaged, its value is still there under another.
    misnamed = [name for name, value in metadata.items() if name != _DIGEST and re.fullmatch("[0-9a-f]{64}", value)]
    expected = metadata.pop(_DIGEST, None)
    if misnamed or (expected is not None and _digest(tensors, metadata) != expected):
        raise InputError(f"{path} is damaged (its tensors differ from the SHA-256 in its header); {remedy}")
    return tensors, metadata


def _with_metadata(content: bytes, metadata: Mapping[str, str]) -> bytes:
    """The bytes of a safetensors file with `metadata` in its header, in one order: the library's own varies."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(
        {"__metadata__": dict(sorted(metadata.items())), **json.loads(content[8:end])}, separators=(",", ":")
    ).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[end:]


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


_LOCK = ".lock"


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """The block is refused while another process is in one for the same folder.

    A folder that did not exist before is removed again where the block fails before it has written anything.
    The operating system holds the lock and drops it when its process ends, however that happens, so that nothing is
    left to clean up after a kill. Where locks of this kind do not exist (Windows), nothing is checked.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _LOCK
    descriptor = open_unlinked(path, os.O_RDWR | os.O_CREAT)
    try:
        if try_lock(descriptor) is False or not is_still_at(path, descriptor):
            raise InputError(
                f"Another process is writing to {folder}. Wait until it has finished, or give another folder."
            )
        try:
            yield
        except BaseException:
            if is_new and folder.is_dir() and [each.name for each in folder.iterdir()] == [_LOCK]:
                path.unlink()
                folder.rmdir()
            raise
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
    if partial.is_symlink():
        partial.unlink()  # remove the link only, not its target
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


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, none where there is no file; a last line that cannot be read is left out."""
    lines = path.read_bytes().splitlines() if path.is_file() else []
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(_entry(path, number, line))
        except InputError:
            if number < len(lines):
                raise
            # A run that is being written, or was killed, may end in half a line.
    return entries


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _entry(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        entry = parse_json(line.decode(), allow_nan=True)  # a loss that diverged is logged as it was
    except ValueError as error:
        raise InputError(f"{path}, line {number}, is not JSON: {error}") from error
    if not isinstance(entry, dict) or not is_number(entry.get("step")):
        found = line[:80].decode(errors="replace")
        raise InputError(f"{path}, line {number}: expected a JSON object with a numeric `step`, found {found}")
    return entry


def require_run(folder: Path) -> None:
    """Refuses what is no run folder, saying what is there instead."""
    if (folder / "config.json").is_file():
        return
    if folder.is_dir():
        if runs := runs_in(folder):
            named = ", ".join(map(str, runs[:MOST_SHOWN])) + (", ..." if len(runs) > MOST_SHOWN else "")
            raise InputError(f"{folder} is no run folder, but holds some. Name one of them: {named}.")
        names = ", ".join(sorted(each.name for each in folder.iterdir()))
        found = f"expected config.json in it, found {names or 'nothing'}"
    else:
        found = "it is a file" if folder.exists() else "there is no such folder"
    raise InputError(f"{folder} is no run folder: {found}.")


def runs_in(folder: Path) -> list[Path]:
    """The run folders right below `folder`, by name."""
    return sorted(each.parent for each in folder.glob("*/config.json"))


class RunFolder:
    """Where everything about one run is kept."""

    def __init__(self, path: Path, defaults: Mapping[str, Any] | None = None) -> None:
        """`defaults` are those of fields that configs leave out, for what is said of another config."""
        self.path, self.defaults = path, defaults
        self.config_path = path / "config.json"
        self.provenance_path = path / "provenance.json"
        self.metrics_path = path / "metrics.jsonl"
        self.result_path = path / "result.json"
        self.checkpoints = path / "checkpoints"

    def check(self, config: Mapping[str, Any]) -> bool:
        """Whether a run of this very `config` is here already; anything else that is here is refused."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; give a folder that is new or holds an earlier run.")
        if self.config_path.exists():
            found = read_json(self.config_path)
            changed = differences(config, found if isinstance(found, Mapping) else {"config": found}, self.defaults)
            if changed:
                lines = "\n  ".join(changed)
                raise InputError(
                    f"{self.path} holds a run with another configuration:\n  {lines}\n"
                    f"Give another folder, or the settings of the run that is there."
                )
            return True
        # Provenance alone was left by a command that was stopped before it wrote the config.
        begun = {self.provenance_path.name}
        if self.path.exists() and any(
            not path.name.startswith(".") and path.name not in begun for path in self.path.iterdir()
        ):
            raise InputError(
                f"{self.path} is not empty and holds no config.json: it is not a run folder. Give another."
            )
        return False

    def open(self, config: Mapping[str, Any], *, command: str | None = None, **made_from: Any) -> "RunFolder":
        """This folder, made for `config` or found to have been made for the same.

        `made_from` is what provenance.json says besides versions, hardware and command: the data, for instance.
        `command` is the command it names, if not the one that was typed.
        """
        if not self.check(config):
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.provenance_path, {**provenance(command), **made_from})
            write_json(self.config_path, config)  # last: from now on it is a run folder
        return self

    def finish(self, result: Mapping[str, Any]) -> None:
        write_json(self.result_path, result)

    def result(self) -> dict[str, Any]:
        """The content of `result.json`; empty before the run has finished."""
        return read_if_there(self.result_path)


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
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return "Apple GPU (MPS)" if torch.backends.mps.is_available() else None
