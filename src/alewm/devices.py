"""Where to compute, by name."""

import torch

from alewm.errors import InputError


def find_device(name: str) -> torch.device:
    """The device called `name`; `auto` is a GPU where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"Unknown device {name!r}; choose auto, cpu, cuda or, for one of several, cuda:1.") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"The device must be auto, cpu or cuda, got {name!r}.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"The device {name!r} was asked for, but torch {torch.__version__} sees {torch.cuda.device_count()} GPUs. "
            f"Choose cpu, or install a build of torch for this machine's GPU."
        )
    return device
