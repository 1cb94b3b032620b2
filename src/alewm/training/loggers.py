"""Metrics for those who like to watch: TensorBoard, trackio and wandb, beside `metrics.jsonl`, which is always written.

None of them is needed, and none can stop training: what fails is reported once and left out.
"""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from alewm.errors import InputError, unknown_name

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
        from alewm.training.tensorboard_sink import TensorBoardSink

        return TensorBoardSink(folder / "tensorboard", step)
    from alewm.training.client_sink import ClientSink

    return ClientSink(name, folder, config, furthest_step)


def _warn(message: str) -> None:
    print(f"logger {message}", file=sys.stderr, flush=True)


def _in_a_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
