"""What training asks of its data, so that any source that offers it can be learned from."""

from collections.abc import Iterator
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
