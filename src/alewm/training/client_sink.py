"""trackio and wandb, which offer the same three calls: `init`, `log`, `finish`."""

import importlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from alewm.files import write_text

PROJECT = "alewm"
_IDENTITY = ".logger-id"
"""A file in the run folder: what makes its name unique, so that a repeated command continues the run it began."""


class ClientSink:
    """A `MetricSink` for a package with the calls of wandb.

    These loggers only append. After an interruption, steps that they had been told of already are not told again;
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
