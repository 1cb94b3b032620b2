"""What `alewm bench scaling` varies; apart from its measuring, so that the command line need not import torch."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Sizes:
    """What is measured; every other size stays at its middle value."""

    costs: tuple[Literal["plan", "state", "regularizer", "update"], ...] = ("plan", "state", "regularizer", "update")
    """What is measured: milliseconds, and the bytes of a state that planning carries."""
    episodes: tuple[int, ...] = (1, 10, 50, 100)
    """Episodes planned together."""
    candidates: tuple[int, ...] = (100, 300, 1000)
    """CEM: action sequences scored per iteration."""
    iterations: int = 30
    """CEM: times the distribution is refined."""
    batches: tuple[int, ...] = (64, 128, 256)
    """Windows per update."""
    presets: tuple[str, ...] = ("two-room-96", "two-room-192", "two-room-384")
    """Widths, by preset."""
    projections: tuple[int, ...] = (256, 1024, 4096)
    """Random directions of the regularizer."""
