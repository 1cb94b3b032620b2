"""Optional loggers beside `metrics.jsonl`: TensorBoard, trackio and wandb.

None of them is needed, and none can stop training: a failure is reported once and the logger is dropped.
"""

import importlib
import importlib.util
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from alewm.errors import InputError, unknown_name
from alewm.files import write_text

PROJECT = "alewm"
_IDENTITY = ".logger-id"
"""A file in the run folder: what makes its name unique, so that a repeated command continues the run it began."""


class ClientSink:
    """A `MetricSink` for a package with the calls of wandb.

    These loggers only append. After an interruption, steps that were already logged are not logged again;
    since a repeated run repeats its steps (bit by bit on a CPU), their curves are those of an uninterrupted run.
    """

    def __init__(self, package: str, folder: Path, config: Mapping[str, Any], furthest_step: int) -> None:
        self._client: Any = importlib.import_module(package)
        path = folder / f"{_IDENTITY}-{package}"
        is_known = path.exists()
        self._told_until = furthest_step if is_known else 0
        identity = path.read_text().strip() if is_known else secrets.token_hex(4)
        name = f"{folder.resolve().name}-{identity}"
        # Accounts, servers and offline use are the package's own business, set by its own variables.
        options: dict[str, Any] = {"dir": str(folder), "id": name} if package == "wandb" else {}
        self._client.init(project=PROJECT, name=name, config=dict(config), resume="allow", **options)
        write_text(path, identity + "\n")

    def write(self, step: int, kind: str, values: Mapping[str, Any]) -> None:
        """Log the numbers, and distributions and pictures if the package has a type for them."""
        if step <= self._told_until:
            return
        known = {f"{kind}/{name}": self._as_logged(value) for name, value in values.items()}
        self._client.log({name: value for name, value in known.items() if value is not None}, step=step)

    def close(self) -> None:
        """Tell the package that the run has ended."""
        self._client.finish()

    def _as_logged(self, value: Any) -> Any:
        array = np.asarray(value)
        if array.ndim == 0:
            return float(array)
        kind = getattr(self._client, "Histogram" if array.ndim == 1 else "Image", None)
        return None if kind is None else kind(array)


class TensorBoardSink:
    """A `MetricSink` that writes event files below `folder`.

    A run that goes on after `step` updates opens a further file, which begins by telling TensorBoard to forget later
    steps; what an interrupted run had written of them stays in its file and is not shown.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        has_history = folder.exists()
        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1 if has_history else None)

    def write(self, step: int, kind: str, values: Mapping[str, Any]) -> None:
        """Write one event per value, named `kind/name`."""
        for name, value in values.items():
            tag, array = f"{kind}/{name}", np.asarray(value)
            if array.ndim == 0:
                self._writer.add_scalar(tag, float(array), step)
            elif array.ndim == 1:
                self._writer.add_histogram(tag, array, step)
            else:
                self._writer.add_image(tag, array, step, dataformats="HWC")
        self._writer.flush()

    def close(self) -> None:
        """Finish the event file."""
        self._writer.close()


LoggerName = Literal["tensorboard", "trackio", "wandb"]

_INSTALL = {
    "tensorboard": "pip install 'alewm[tensorboard]'",
    "trackio": "pip install trackio",
    "wandb": "pip install wandb",
}

_MOST_FAILURES = 3
"""Failures in a row after which a logger is left out: one that waits for a network would slow every line of metrics."""


@runtime_checkable
class MetricSink(Protocol):
    """Where metrics go."""

    def write(self, step: int, kind: str, values: Mapping[str, Any]) -> None:
        """Take in what was measured after `step` updates.

        A value is a number, a sequence of numbers (a distribution) or an RGB picture, uint8 [Y, X, 3].
        """
        ...

    def close(self) -> None:
        """Hand over what is still held back."""
        ...


class Loggers:
    """The loggers a run was asked for, as one `MetricSink` that never raises once it is made."""

    def __init__(
        self, names: Sequence[str] = (), folder: Path = Path(), config: Mapping[str, Any] | None = None
    ) -> None:
        """Refuses a logger that is unknown or not installed; nothing is opened or written before `open`."""
        for name in names:
            if name not in get_args(LoggerName):
                raise unknown_name("logger", name, get_args(LoggerName))
            if importlib.util.find_spec(name) is None:
                raise InputError(
                    f"--log {name} needs the package {name!r}, which is not installed. Install it: {_INSTALL[name]}. "
                    f"Metrics go to metrics.jsonl in any case."
                )
        self._names = tuple(dict.fromkeys(names))
        self._folder, self._config = folder, dict(config or {})
        self._sinks: dict[str, MetricSink] = {}
        self._failures: dict[str, int] = {}

    @property
    def are_listening(self) -> bool:
        """Whether anyone is listening: what only loggers show need not be made otherwise."""
        return bool(self._sinks)

    def open(self, step: int, furthest_step: int) -> None:
        """Start, for a run that goes on after `step` updates and had once come as far as `furthest_step`."""
        for name in self._names:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._sinks[name] = _open(name, self._folder, self._config, step, furthest_step)
            except Exception as error:
                _warn(f"{name} could not be started ({_in_a_line(error)}); training goes on without it.")

    def write(self, step: int, kind: str, values: Mapping[str, Any]) -> None:
        """Tell every logger that still works."""
        for name, sink in list(self._sinks.items()):
            try:
                sink.write(step, kind, values)
                if name in self._failures:
                    self._failures[name] = 0
            except Exception as error:
                self._count_failure(name, step, error)

    def close(self) -> None:
        """Let all of them finish."""
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


def _open(name: str, folder: Path, config: Mapping[str, Any], step: int, furthest_step: int) -> MetricSink:
    if name == "tensorboard":
        return TensorBoardSink(folder / "tensorboard", step)

    return ClientSink(name, folder, config, furthest_step)


def _warn(message: str) -> None:
    print(f"logger {message}", file=sys.stderr, flush=True)


def _in_a_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
