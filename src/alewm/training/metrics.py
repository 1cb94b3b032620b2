"""Metrics of a run: means gathered on the device, `metrics.jsonl`, and optional loggers.

TensorBoard, trackio and wandb are optional and cannot stop training: a failing logger is reported once, then dropped.
"""

import importlib
import importlib.util
import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from alewm.distributed import mean_across_ranks
from alewm.errors import InputError, unknown_name
from alewm.files import naming, open_unlinked, parse_json, write_bytes, write_text
from alewm.runs.folder import read_metrics
from alewm.shapes import Tensor


class Logbook:
    """A file of JSON lines, each with a `step`; a resumed run removes the lines after its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with naming(self.path), open(self.path, "a", opener=open_unlinked) as file:
            file.write(json.dumps(record) + "\n")

    def flush(self) -> None:
        """Flush what was written to the disk."""
        if self.path.exists():
            with naming(self.path), self.path.open("rb+") as file:
                os.fsync(file.fileno())

    def latest(self) -> dict[str, Any]:
        """The last line of each `kind`, joined, its values named `kind/name`."""
        joined: dict[str, Any] = {}
        for record in read_metrics(self.path):
            kind = record.get("kind", "")
            joined |= {f"{kind}/{name}": value for name, value in record.items() if name not in ("step", "kind")}
        return joined

    def rewind(self, step: int) -> int:
        """Remove lines after `step` and a truncated last line; return the furthest step that had been written."""
        if not self.path.exists():
            return 0
        kept, furthest = [], 0
        lines = self.path.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            try:
                written = int(parse_json(line.decode(), allow_nan=True)["step"])
            except (ValueError, KeyError, TypeError) as error:
                if number == len(lines):
                    break
                raise InputError(
                    f"{self.path}, line {number}: expected a JSON object with a `step`, found "
                    f"{line[:60].decode(errors='replace')!r}. "
                    f"Move the file away to go on without its history."
                ) from error
            furthest = max(furthest, written)
            if written <= step:
                # The last line may be cut right before its end: what is appended must begin a line of its own.
                kept.append(line.removesuffix(b"\n") + b"\n")
        if kept != lines:
            write_bytes(self.path, b"".join(kept))
        return furthest


class RunningMeans:
    """Means of device tensors since the last `take`, so that logging synchronises with the device once per line.

    Every call must bring the same names; vectors are averaged entry by entry.
    """

    def __init__(self) -> None:
        self._names: list[tuple[str, int]] = []
        self._sum: Tensor | None = None
        self.count = 0

    def add(self, values: Mapping[str, Tensor]) -> None:
        self._names = [(name, value.numel() if value.ndim else 0) for name, value in values.items()]
        flat = torch.cat([value.detach().float().flatten() for value in values.values()])
        self._sum = flat if self._sum is None else self._sum + flat
        self.count += 1

    def take(self) -> dict[str, float | list[float]]:
        """Return the means over steps and ranks, and reset."""
        if self._sum is None:
            return {}
        flat = iter(mean_across_ranks(self._sum / self.count).tolist())
        self._sum, self.count = None, 0
        return {name: [next(flat) for _ in range(size)] if size else next(flat) for name, size in self._names}


def q_by_capacity(means: Mapping[str, Any], capacities: Sequence[int]) -> dict[str, Any]:
    """`means` with `q/8`, `q/16`, ... instead of a list, so that a line of metrics is self-describing.

    The q of a data set, `q/two-room`, becomes `q/two-room/8`, `q/two-room/16`, ...
    """
    lists = {name: value for name, value in means.items() if name.split("/")[0] == "q"}
    named = {f"{name}/{k}": share for name, q in lists.items() for k, share in zip(capacities, q, strict=True)}
    return {name: value for name, value in means.items() if name not in lists} | named


PROJECT = "alewm"
_IDENTITY = ".logger-id"
"""A file in the run folder with the logger's run id, so that a repeated command continues the same run."""


class ClientSink:
    """A logger that is a package with the calls of wandb.

    These loggers only append. After an interruption, steps that were already logged are not logged again;
    since a repeated run repeats its steps (bit by bit on a CPU), their curves are those of an uninterrupted run.
    """

    def __init__(self, package: str, folder: Path, config: Mapping[str, Any], furthest_step: int) -> None:
        self._client: Any = importlib.import_module(package)
        path = folder / f"{_IDENTITY}-{package}"
        is_known = path.exists()
        self._logged_until = furthest_step if is_known else 0
        identity = path.read_text().strip() if is_known else secrets.token_hex(4)
        name = f"{folder.resolve().name}-{identity}"
        # Accounts, servers and offline use are configured by the package's own environment variables.
        options: dict[str, Any] = {"dir": str(folder), "id": name} if package == "wandb" else {}
        self._client.init(project=PROJECT, name=name, config=dict(config), resume="allow", **options)
        write_text(path, identity + "\n")

    def write(self, step: int, kind: str, values: Mapping[str, Any]) -> None:
        """Log the single numbers of a step that was not logged before; lists are left out."""
        if step > self._logged_until:
            self._client.log(_numbers(kind, values), step=step)

    def close(self) -> None:
        """Tell the package that the run has ended."""
        self._client.finish()


class TensorBoardSink:
    """A logger that writes event files below `folder`.

    A run that goes on after `step` updates opens a further file, which begins by telling TensorBoard to forget later
    steps; what an interrupted run had written of them stays in its file and is not shown.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        has_history = folder.exists()
        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1 if has_history else None)

    def write(self, step: int, kind: str, values: Mapping[str, Any]) -> None:
        """Write one event per number, named `kind/name`."""
        for tag, value in _numbers(kind, values).items():
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _numbers(kind: str, values: Mapping[str, Any]) -> dict[str, float]:
    """The single numbers among `values`, named `kind/name`."""
    return {f"{kind}/{name}": float(value) for name, value in values.items() if not isinstance(value, Sequence)}


LoggerName = Literal["tensorboard", "trackio", "wandb"]

_MOST_FAILURES = 3
"""Failures in a row after which a logger is left out: one that waits for a network would slow every line of metrics."""


class Loggers:
    """The loggers a run was asked for, as one that never raises once it is made."""

    def __init__(
        self, names: Sequence[str] = (), folder: Path = Path(), config: Mapping[str, Any] | None = None
    ) -> None:
        """Refuses a logger that is unknown or not installed; nothing is opened or written before `open`."""
        for name in names:
            if name not in get_args(LoggerName):
                raise unknown_name("logger", name, get_args(LoggerName))
            if importlib.util.find_spec(name) is None:
                raise InputError(
                    f"--log {name} needs the package {name!r}, which is not installed. Install it: pip install {name}. "
                    f"Metrics go to metrics.jsonl in any case."
                )
        self._names = tuple(dict.fromkeys(names))
        self._folder, self._config = folder, dict(config or {})
        self._sinks: dict[str, ClientSink | TensorBoardSink] = {}
        self._failures: dict[str, int] = {}

    def open(self, step: int, furthest_step: int) -> None:
        """Start, for a run that goes on after `step` updates and had once come as far as `furthest_step`."""
        for name in self._names:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                if name == "tensorboard":
                    self._sinks[name] = TensorBoardSink(self._folder / name, step)
                else:
                    self._sinks[name] = ClientSink(name, self._folder, self._config, furthest_step)
            except Exception as error:
                _warn(f"{name} could not be started ({_in_a_line(error)}); training goes on without it.")

    def write(self, step: int, kind: str, values: Mapping[str, Any]) -> None:
        for name, sink in list(self._sinks.items()):
            try:
                sink.write(step, kind, values)
                if name in self._failures:
                    self._failures[name] = 0
            except Exception as error:
                self._count_failure(name, step, error)

    def close(self) -> None:
        for name, sink in self._sinks.items():
            try:
                sink.close()
            except Exception as error:
                _warn(f"{name} failed while it was closed ({_in_a_line(error)}).")
        self._sinks = {}

    def _count_failure(self, name: str, step: int, error: Exception) -> None:
        if name not in self._failures:
            self._failures[name] = 0
            _warn(
                f"{name} failed at step {step} ({_in_a_line(error)}). Training goes on; after {_MOST_FAILURES} "
                f"failures in a row it is left out. metrics.jsonl has everything."
            )
        self._failures[name] += 1
        if self._failures[name] >= _MOST_FAILURES:
            del self._sinks[name]


def _warn(message: str) -> None:
    print(f"logger {message}", file=sys.stderr, flush=True)


def _in_a_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
