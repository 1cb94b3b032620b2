"""How an update is executed: as it is written, compiled, or compiled and recorded as one CUDA graph.

The choice changes the time of an update and the rounding of its sums, nothing else: weights, noise and checkpoints have
the same layout and meaning on every path.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from alewm.devices import why_no_triton
from alewm.distributed import num_ranks
from alewm.errors import InputError
from alewm.model.world_model import WorldModel

Acceleration = Literal["auto", "none", "compile", "graph"]
Path = Literal["none", "compile", "graph"]
"""What `auto` may become."""


@dataclass(frozen=True)
class Chosen:
    """A way to execute updates, and why it was taken."""

    path: Path
    reason: str

    def __str__(self) -> str:
        how = {"none": "not compiled", "compile": "compiled", "graph": "compiled and recorded as a CUDA graph"}
        return f"{how[self.path]} ({self.reason})"

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Nothing is compiled in the block: a pass without gradients would be another program to the compiler."""
        if self.path == "none":
            yield
        else:
            with torch.compiler.set_stance("force_eager"):
                yield


def choose_acceleration(asked: Acceleration, device: torch.device, *, deterministic: bool = False) -> Chosen:
    """The way updates run on `device`; one that was asked for by name and cannot run is refused."""
    obstacle = _why_not_compile(device)
    if obstacle is None and deterministic:
        obstacle = "only repeatable algorithms were asked for"
    if asked == "auto":
        if obstacle is not None:
            return Chosen("none", obstacle)
        if num_ranks() > 1:
            return Chosen("compile", "several processes share the batch")
        return Chosen("graph", "one GPU with Triton")
    if asked == "none":
        return Chosen("none", "asked for")
    if obstacle is not None:
        raise InputError(f"Updates cannot be compiled: {obstacle}. Leave the acceleration at `auto`.")
    if asked == "graph" and num_ranks() > 1:
        raise InputError("A CUDA graph holds one process, but several share the batch; use `compile` or `auto`.")
    return Chosen(asked, "asked for")


def _why_not_compile(device: torch.device) -> str | None:
    if device.type != "cuda":
        return f"the device is a {device.type}, where compiling takes minutes and gains little"
    return why_no_triton(device)


def compile_blocks(model: WorldModel) -> None:
    """Compile the parts of `model` in place, each kind of block once; parameter names stay as they are.

    A compiled block serves all blocks of its shape, so that compiling takes a fraction of the time it takes for the
    encoder as a whole. The selector and the projectors are left alone: they are small, and a recorded update launches
    their many kernels for nothing.
    """
    for block in (*model.encoder.blocks, *model.predictor.blocks):
        block.compile(dynamic=False)
    model.tokens = torch.compile(model.tokens, dynamic=False)  # type: ignore[method-assign]
