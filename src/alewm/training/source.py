"""What training asks of its data, so that any source that offers it can be learned from.

`batches_on` copies batches to the device while the previous update still runs.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch

from alewm.shapes import Tensor


@runtime_checkable
class WindowBatch(Protocol):
    """One batch of this rank's windows."""

    def to(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Frames [B, F, Y, X, 3] and the normalised action blocks [B, F - 1, A] between them, on `device`."""
        ...


@runtime_checkable
class WindowSource(Protocol):
    """Batches of this rank's training windows, from a position that can be saved."""

    def forever(self) -> Iterator[WindowBatch]:
        """The batches that follow the current position, pass after pass."""
        ...

    def __len__(self) -> int:
        """Batches in one pass."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch handed out, as JSON values; equal on all ranks."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        ...


@runtime_checkable
class FiniteSource(WindowSource, Protocol):
    """A source that can be read to the end of a pass."""

    def __iter__(self) -> Iterator[WindowBatch]:
        """The rest of the current pass."""
        ...


@dataclass(frozen=True)
class RunWindows:
    """What a trainer reads."""

    training: WindowSource
    """This rank's training windows."""
    validation: Iterable[WindowBatch] = ()
    """Its validation windows, the same ones at every look."""
    validation_apart: Mapping[str, Iterable[WindowBatch]] = field(default_factory=dict)
    """The validation windows of each data set by itself, where there are several; training batches take turns in this
    order."""
    recalibration: Iterable[WindowBatch] = ()
    """Training windows from which BatchNorm's moments are measured, the same ones each time."""


class SameBatches:
    """The first batches of a loader, the same ones at every iteration."""

    def __init__(self, loader: FiniteSource, most: int) -> None:
        self._loader, self._most, self._beginning = loader, most, loader.state_dict()

    def __iter__(self) -> Iterator[WindowBatch]:
        """At most so many batches, from the loader's beginning."""
        self._loader.load_state_dict(self._beginning)
        return islice(iter(self._loader), self._most)


_UPDATES_IN_FLIGHT = 2
"""How far the processor may run ahead of a GPU; each update in flight holds a batch in its memory."""


def batches_on(device: torch.device, source: WindowSource) -> Iterator[tuple[Tensor, Tensor]]:
    """Pixels and actions of the batches that follow the source's position, on `device`.

    A batch is taken from the source when it is asked for, not before, so that the source's position is always that of
    the batch in use. On a GPU updates are enqueued, not awaited: the next copy runs on a stream of its own while they
    compute.
    """
    if device.type != "cuda":
        for windows in source.forever():
            yield windows.to(device)
        return
    copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    in_flight = deque[torch.cuda.Event]()
    for windows in source.forever():
        main = torch.cuda.current_stream(device)
        in_flight.append(main.record_event())
        if len(in_flight) > _UPDATES_IN_FLIGHT:
            in_flight.popleft().synchronize()
        with torch.cuda.stream(copies):
            pixels, actions = windows.to(device)
        main.wait_stream(copies)
        for tensor in (pixels, actions):
            tensor.record_stream(main)
        yield pixels, actions
