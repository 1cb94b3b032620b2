"""How long something takes, where a GPU's time goes kernel by kernel, and the line of JSON every benchmark ends in."""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from alewm.errors import InputError
from alewm.runs.folder import portable, provenance

_CALLS = 3
_LONGEST_NAME = 90
_MOST_KERNELS = 30


def kernel_table(call: Callable[[], object], device: torch.device) -> str:
    """The kernels of one call, the longest first: milliseconds, launches, share and name."""
    check_has_kernels(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(_CALLS):
            call()
        torch.cuda.synchronize(device)
    kernels = sorted(profile.key_averages(), key=lambda kernel: -kernel.device_time_total)
    total = sum(kernel.device_time_total for kernel in kernels)
    lines = [f"{total / _CALLS / 1e3:.2f} ms of kernels per call"]
    for kernel in kernels[:_MOST_KERNELS]:
        milliseconds, share = kernel.device_time_total / _CALLS / 1e3, kernel.device_time_total / total
        name = " ".join(kernel.key.split())[:_LONGEST_NAME]
        lines.append(f"{milliseconds:9.3f} ms {kernel.count // _CALLS:6d} x {share:6.1%}  {name}")
    return "\n".join(lines)


def check_has_kernels(device: torch.device) -> None:
    """Refuses a profile without a GPU; benchmarks that take minutes ask before them."""
    if device.type != "cuda":
        raise InputError(f"A profile of kernels needs a GPU, but the device is a {device.type}; leave out --profile.")


def median_seconds(call: Callable[[], object], repeats: int, device: torch.device) -> float:
    """The median time of `repeats` calls after three that do not count; waits for the device at the end of each."""
    check_repeats(repeats)
    seconds = []
    for repeat in range(repeats + 3):
        began = time.perf_counter()
        call()
        wait_for(device)
        if repeat >= 3:
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def wait_for(device: torch.device) -> None:
    """Returns when a GPU has done what was asked of it; elsewhere that is so already."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
