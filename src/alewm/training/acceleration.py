"""How an update is executed: as written, compiled, or compiled and recorded as one CUDA graph; blocks fused or not.

The choice changes the time of an update and the rounding of its sums, nothing else: weights, noise and checkpoints have
the same layout and meaning on every path.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch

from alewm.devices import why_no_triton
from alewm.distributed import num_ranks
from alewm.errors import InputError
from alewm.model.fused.widths import why_not_fused
from alewm.model.vit import ViTConfig
from alewm.model.world_model import WorldModel

Acceleration = Literal["auto", "none", "compile", "graph"]
Path = Literal["none", "compile", "graph"]
"""What `auto` may become."""
FusedBlocks = Literal["none", "mlp"]
"""Which halves of the encoder's blocks are computed by kernels of our own."""


@dataclass(frozen=True)
class Chosen:
    """A way to execute updates, and why it was taken."""

    path: Path
    reason: str
    fused: FusedBlocks = "none"
    fused_reason: str | None = None
    """Why blocks are fused or are not, where it was asked for."""

    def __str__(self) -> str:
        how = {"none": "not compiled", "compile": "compiled", "graph": "compiled and recorded as a CUDA graph"}
        which = {"none": "no half-blocks", "mlp": "MLP halves of blocks"}
        fused = "" if self.fused_reason is None else f", {which[self.fused]} fused ({self.fused_reason})"
        return f"{how[self.path]} ({self.reason}){fused}"

    def fusing(
        self,
        asked: FusedBlocks,
        encoder: ViTConfig,
        device: torch.device,
        dtype: torch.dtype | None,
        *,
        deterministic: bool = False,
    ) -> "Chosen":
        """The same with the blocks of `encoder` fused as asked, or plain and with the reason where they cannot be.

        `dtype` is that of mixed precision, None without.
        """
        if asked == "none":
            return self
        obstacle = why_no_triton(device) or why_not_fused(encoder.hidden_dim, encoder.mlp_dim)
        if dtype != torch.bfloat16:
            obstacle = obstacle or "products are not in bfloat16"
        if deterministic:
            obstacle = obstacle or "tiles are chosen by time, which does not repeat"
        return replace(self, fused="none" if obstacle else asked, fused_reason=obstacle or "asked for")

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


def fuse_encoder(model: WorldModel, which: Literal["mlp"], device: torch.device) -> None:
    """Compute blocks of the encoder by fused kernels, in place, with the tiles that are fastest on `device`."""
    from alewm.model.fused.blocks import fuse_blocks  # importing Triton takes a second, which only GPUs should cost
    from alewm.model.fused.trials import choose_mlp_tiles

    encoder = model.encoder.config
    choose_mlp_tiles(encoder.hidden_dim, encoder.mlp_dim, torch.bfloat16, device)
    fuse_blocks(model.encoder, which)


def compile_blocks(model: WorldModel) -> None:
    """Compile the parts of `model` in place, each kind of block once; parameter names stay as they are.

    A compiled block serves all blocks of its shape, so that compiling takes a fraction of the time it takes for the
    encoder as a whole. The selector and the projectors are left alone: they are small, and a recorded update launches
    their many kernels for nothing.
    """
    for block in (*model.encoder.blocks, *model.predictor.blocks):
        block.compile(dynamic=False)
    model.tokens = torch.compile(model.tokens, dynamic=False)  # type: ignore[method-assign]
