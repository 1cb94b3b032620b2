"""Updates that repeat bit by bit on a GPU: only algorithms whose sums have one order."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def repeatable(asked: bool) -> Iterator[None]:
    """Only repeatable algorithms, while it lasts and where it is asked for.

    Kernels of our own add in one order anyway. Attention's way back by cuDNN does not (`model/attention.py`), and is
    left to a kernel that does.
    """
    if not asked:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # Memory is written before it is read; filling it first, which helps to find where it is not, costs a launch each.
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        memory.fill_uninitialized_memory = filled
