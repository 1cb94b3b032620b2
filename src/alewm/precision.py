"""The precision that statistics, moments and costs are computed in, whatever the model's."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from alewm.shapes import Tensor


def at_least_float32(values: Tensor) -> Tensor:
    """`values` in float32, or in float64 if they came so."""
    return values if values.dtype == torch.float64 else values.float()


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No autocast and no TF32: a projection rounded to ten bits would shift the statistic by more than it measures."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
