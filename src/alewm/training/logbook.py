"""Metrics: gathered on the device, written as JSON lines."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from alewm.distributed import detached_mean
from alewm.errors import InputError
from alewm.files import naming, parse_json, write_bytes
from alewm.runs.folder import read_metrics
from alewm.shapes import Tensor


class Logbook:
    """A file of JSON lines, each with a `step`; a resumed run takes back what lies after its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with naming(self.path), self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def flush(self) -> None:
        """Put what was written onto the disk."""
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
        """The furthest step that had been written, after every line later than `step` and a cut last line are gone."""
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
    """Means of device tensors since the last look, so that logging waits for the device once per look.

    Every call must bring the same names; vectors are averaged entry by entry.
    """

    def __init__(self) -> None:
        self._names: list[tuple[str, int]] = []
        self._sum: Tensor | None = None
        self.count = 0

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Take in one step's values."""
        self._names = [(name, value.numel() if value.ndim else 0) for name, value in values.items()]
        flat = torch.cat([value.detach().float().flatten() for value in values.values()])
        self._sum = flat if self._sum is None else self._sum + flat
        self.count += 1

    def take(self) -> dict[str, float | list[float]]:
        """The means over steps and ranks, and a fresh start."""
        if self._sum is None:
            return {}
        flat = iter(detached_mean(self._sum / self.count).tolist())
        self._sum, self.count = None, 0
        return {name: [next(flat) for _ in range(size)] if size else next(flat) for name, size in self._names}


def q_by_capacity(means: Mapping[str, Any], capacities: Sequence[int]) -> dict[str, Any]:
    """`means` with `q/8`, `q/16`, ... instead of a list: a line of metrics says by itself what it holds.

    The q of a data set, `q/two-room`, becomes `q/two-room/8`, `q/two-room/16`, ...
    """
    lists = {name: value for name, value in means.items() if name.split("/")[0] == "q"}
    named = {f"{name}/{k}": share for name, q in lists.items() for k, share in zip(capacities, q, strict=True)}
    return {name: value for name, value in means.items() if name not in lists} | named
