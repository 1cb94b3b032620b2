"""How an update is executed: as written, compiled, recorded as one CUDA graph, or both; blocks fused or not.

The choice changes the time of an update and the rounding of its sums, nothing else: weights, noise and checkpoints have
the same layout and meaning on every path.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

import torch

from alewm.devices import why_no_triton
from alewm.distributed import num_ranks
from alewm.errors import InputError
from alewm.model.fused.widths import why_not_fused
from alewm.model.vit import ViTConfig
from alewm.model.world_model import WorldModel

Acceleration = Literal["auto", "none", "compile", "record", "graph"]
UpdatePath = Literal["none", "compile", "record", "graph"]
"""What `auto` may become, and `record`: a graph of what was not compiled, for runs too short to earn compiling back."""

COMPILED: Final[frozenset[UpdatePath]] = frozenset({"compile", "graph"})
RECORDED: Final[frozenset[UpdatePath]] = frozenset({"record", "graph"})
EncoderBlocks = Literal["auto", "plain", "fused"]
"""How the encoder's blocks are computed: as they are written, or by kernels of our own."""


@dataclass(frozen=True)
class Chosen:
    """A way to execute updates, and why it was taken."""

    path: UpdatePath
    reason: str
    fused: bool = False
    """Whether the encoder's blocks are computed by kernels of our own."""
    why_plain: str | None = None
    """Why they are not, where they could have been wanted."""

    def __str__(self) -> str:
        how = {
            "none": "not compiled",
            "compile": "compiled",
            "record": "recorded as a CUDA graph",
            "graph": "compiled and recorded as a CUDA graph",
        }
        blocks = ", the encoder's blocks by fused kernels" if self.fused else ""
        blocks += f", the encoder's blocks plain ({self.why_plain})" if self.why_plain else ""
        return f"{how[self.path]} ({self.reason}){blocks}"

    def fusing(
        self, asked: EncoderBlocks, encoder: ViTConfig, device: torch.device, dtype: torch.dtype | None
    ) -> "Chosen":
        """The same with the blocks of `encoder` computed as asked; `dtype` is that of mixed precision, None without.

        Kernels that were asked for by name and cannot run are refused.
        """
        if asked == "plain" or (asked == "auto" and self.path == "none"):
            return self
        obstacle = why_no_triton(device) or why_not_fused(encoder)
        if dtype != torch.bfloat16:
            obstacle = obstacle or "products are not in bfloat16"
        if obstacle is None and torch.cuda.is_available():
            from alewm.model.fused.chain import why_kernels_fail

            obstacle = why_kernels_fail(encoder, device)
        if asked == "fused" and obstacle is not None:
            raise InputError(
                f"The encoder's blocks cannot be fused: {obstacle}. Leave them at `auto`, or ask for `plain`."
            )
        return replace(self, fused=obstacle is None, why_plain=obstacle)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Nothing is compiled in the block: a pass without gradients would be another program to the compiler."""
        if self.path not in COMPILED:
            yield
        else:
            with torch.compiler.set_stance("force_eager"):
                yield


def choose_acceleration(asked: Acceleration, device: torch.device) -> Chosen:
    """The way updates run on `device`; one that was asked for by name and cannot run is refused."""
    obstacle = _why_not_compile(device)
    if asked == "auto":
        if obstacle is not None:
            return Chosen("none", obstacle)
        if num_ranks() > 1:
            return Chosen("compile", "several processes share the batch")
        return Chosen("graph", "one GPU with Triton")
    if asked == "none":
        return Chosen("none", "asked for")
    if obstacle is not None:
        how = "compiled" if asked in COMPILED else "recorded"
        raise InputError(f"Updates cannot be {how}: {obstacle}. Leave the acceleration at `auto`.")
    if asked in RECORDED and num_ranks() > 1:
        raise InputError("A CUDA graph holds one process, but several share the batch; use `compile` or `auto`.")
    return Chosen(asked, "asked for")


def _why_not_compile(device: torch.device) -> str | None:
    if device.type != "cuda":
        return f"the device is a {device.type}, where compiling takes minutes and gains little"
    return why_no_triton(device)


def fuse_encoder(model: WorldModel) -> None:
    """Compute the blocks of the encoder by fused kernels from now on, in place."""
    from alewm.model.fused.chain import fuse_blocks  # importing Triton takes a second, which only GPUs should cost

    fuse_blocks(model.encoder)


def compile_blocks(model: WorldModel, *, is_fused: bool = False) -> None:
    """Compile the parts of `model` in place, each kind of block once; parameter names stay as they are.

    A compiled block serves all blocks of its shape, so that compiling takes a fraction of the time it takes for the
    encoder as a whole; a fused encoder's blocks have nothing to compile. The selector and the projectors are left
    alone: they are small, and a recorded update launches their many kernels for nothing.
    """
    for block in (*(() if is_fused else model.encoder.blocks), *model.predictor.blocks):
        block.compile(dynamic=False)
    model.tokens = torch.compile(model.tokens, dynamic=False)  # type: ignore[method-assign]
