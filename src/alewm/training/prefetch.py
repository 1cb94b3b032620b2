"""Batches on the device: copied beside the update that is still running."""

from collections import deque
from collections.abc import Iterator

import torch

from alewm.shapes import Tensor
from alewm.training.source import WindowSource

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
