"""How long something takes, and the line of JSON every benchmark ends in."""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from alewm.errors import InputError
from alewm.runs.portable import portable
from alewm.runs.provenance import provenance


def median_seconds(call: Callable[[], object], repeats: int, device: torch.device) -> float:
    """The median time of `repeats` calls after three that do not count; waits for the device at the end of each."""
    check_repeats(repeats)
    seconds = []
    for repeat in range(repeats + 3):
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if repeat >= 3:
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def check_repeats(repeats: int) -> None:
    """Refuses a number of repetitions of which there is no median."""
    if repeats < 1:
        raise InputError(f"--repeats must be at least 1, got {repeats}.")


def recorded(call: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """`call` as a CUDA graph to replay, as training runs it: kernels without the time to launch them; else `call`.

    Leaves that autograd reaches from it must be fresh: it remembers the stream that old ones were first used on.
    """
    if device.type != "cuda":
        return call
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize(device)
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.synchronize(device)
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph.replay


def peak_mebibytes(device: torch.device) -> float | None:
    """The most memory that tensors have taken on a GPU so far; None elsewhere."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None


def print_line(bench: str, **values: Any) -> None:
    """The last line: everything measured, with versions, hardware and command, and without the machine's folders."""
    print(json.dumps({"bench": bench, **values, "made_with": portable(provenance())}))
