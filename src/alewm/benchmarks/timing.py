"""How long something takes, and the line of JSON every benchmark ends in."""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from alewm.runs.provenance import provenance


def median_seconds(call: Callable[[], object], repeats: int, device: torch.device) -> float:
    """The median time of `repeats` calls after three that do not count; waits for the device at the end of each."""
    seconds = []
    for repeat in range(repeats + 3):
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if repeat >= 3:
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def print_line(bench: str, **values: Any) -> None:
    """The last line: everything measured, with versions, hardware and command."""
    print(json.dumps({"bench": bench, **values, "made_with": provenance()}))
