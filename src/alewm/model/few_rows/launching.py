"""Launching kernels, or compiling those that a call is going to launch, several at a time.

A rollout has about fifteen kernels of a second or two each to compile, most of it outside Python; one after the other
they would be felt by whoever plans for the first time.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import torch

_COMPILERS = 8
_waiting: ContextVar[dict[object, Callable[[], object]] | None] = ContextVar("kernels to compile", default=None)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run `kernel`; while kernels are collected, only note that it will have to be compiled."""
    waiting = _waiting.get()
    if waiting is None:
        kernel[grid](*arguments, **options)
        return
    specialised = tuple(_specialised(argument) for argument in arguments)
    key = (kernel.__name__, specialised, tuple(options.items()))
    waiting[key] = lambda: kernel.warmup(*arguments, grid=grid, **options)


def to_compile(call: Callable[[], object]) -> list[Callable[[], object]]:
    """What compiles each kernel that `call` launches; it is called once, with kernels that do nothing."""
    waiting: dict[object, Callable[[], object]] = {}
    token = _waiting.set(waiting)
    try:
        call()
    finally:
        _waiting.reset(token)
    return list(waiting.values())


def compile_side_by_side(call: Callable[[], object], device: torch.device) -> None:
    """Compile what `call` launches on that GPU; it is called once, with kernels that do nothing."""

    def compile_one(compiling: Callable[[], object]) -> None:
        with torch.cuda.device(device):
            torch.cuda.synchronize()  # a thread's first word to the GPU, which gives it a context
            compiling()

    with ThreadPoolExecutor(_COMPILERS) as pool:
        list(pool.map(compile_one, to_compile(call)))


def _specialised(argument: Any) -> object:
    """What of an argument Triton compiles for."""
    if isinstance(argument, torch.Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    return (argument == 1, argument % 16 == 0) if isinstance(argument, int) else type(argument)
