"""Where a GPU's time goes, kernel by kernel."""

from collections.abc import Callable

import torch

from alewm.errors import InputError

_CALLS = 3
_LONGEST_NAME = 90
_MOST_KERNELS = 30


def kernel_table(call: Callable[[], object], device: torch.device) -> str:
    """The kernels of one call, the longest first: milliseconds, launches, share and name."""
    if device.type != "cuda":
        raise InputError(f"A profile of kernels needs a GPU, but the device is a {device.type}; leave out --profile.")
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
