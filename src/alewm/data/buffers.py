"""Batch memory that is used again: fresh pages cost as much as decoding into them."""

from collections import deque
from dataclasses import dataclass

import torch

from alewm.shapes import Tensor


@dataclass
class Buffer:
    """Memory for the frames of one batch."""

    pixels: Tensor
    copied: torch.cuda.Event | None = None
    """Passes once the device has read the frames; until then they must not be overwritten."""


class BufferPool:
    """Buffers of one shape, handed out and taken back."""

    def __init__(self, shape: tuple[int, ...], pin_memory: bool) -> None:
        self._shape = shape
        self._pin_memory = pin_memory
        self._free: deque[Buffer] = deque()

    def take(self) -> Buffer:
        """A buffer nobody uses: the one given back longest ago, else a new one."""
        if not self._free:
            return Buffer(torch.empty(self._shape, dtype=torch.uint8, pin_memory=self._pin_memory))
        buffer = self._free.popleft()
        if buffer.copied is not None:
            buffer.copied.synchronize()
            buffer.copied = None
        return buffer

    def give_back(self, buffer: Buffer) -> None:
        """Take `buffer` back; whoever held it is done with it."""
        self._free.append(buffer)

    def give_back_after_copy(self, buffer: Buffer, device: torch.device) -> None:
        """Take `buffer` back once the copy to `device` that was just enqueued is done."""
        if self._pin_memory and device.type == "cuda":
            buffer.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            buffer.copied.record(torch.cuda.current_stream(device))
        self._free.append(buffer)
