"""How an update is executed: as written, compiled, recorded as a CUDA graph, or both; with fused encoder blocks or not.

The choice changes the time of an update and the rounding of its sums. Weights, noise and checkpoints have the same
layout and meaning on every path. `rehearse` compiles everything on random batches while data is still being recorded.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

import torch

from alewm.data.windows import WindowShape
from alewm.devices import why_no_triton
from alewm.distributed import num_ranks
from alewm.errors import InputError
from alewm.kernels.tiles import why_not_fused
from alewm.model.vit import ViTConfig
from alewm.model.world_model import WorldModel, build_world_model
from alewm.shapes import Tensor
from alewm.training.config import Acceleration, EncoderBlocks, RunConfig
from alewm.training.objective import Objective
from alewm.training.random_streams import RandomStreams
from alewm.training.step import PlainUpdates, StepResult, build_optimizer, repeatable

UpdatePath = Literal["none", "compile", "record", "graph"]
"""Ways to execute updates. `record` is a CUDA graph of uncompiled code, for runs too short to repay compiling."""

COMPILED: Final[frozenset[UpdatePath]] = frozenset({"compile", "graph"})
RECORDED: Final[frozenset[UpdatePath]] = frozenset({"record", "graph"})


@dataclass(frozen=True)
class Chosen:
    """A way to execute updates, and why it was taken."""

    path: UpdatePath
    reason: str
    fused: bool = False
    """Whether fused kernels compute the encoder's blocks."""
    why_plain: str | None = None
    """Why the blocks are not fused, where a GPU could have fused them."""

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
        """A copy that computes the blocks of `encoder` as asked; `dtype` is that of mixed precision, None without.

        Kernels that were asked for by name and cannot run are refused.
        """
        if asked == "plain" or (asked == "auto" and self.path == "none"):
            return self
        obstacle = why_no_triton(device) or why_not_fused(encoder)
        if dtype != torch.bfloat16:
            obstacle = obstacle or "products are not in bfloat16"
        if obstacle is None and torch.cuda.is_available():
            from alewm.kernels.encoder_blocks import why_kernels_fail

            obstacle = why_kernels_fail(encoder, device)
        if asked == "fused" and obstacle is not None:
            raise InputError(
                f"The encoder's blocks cannot be fused: {obstacle}. Leave them at `auto`, or ask for `plain`."
            )
        return replace(self, fused=obstacle is None, why_plain=obstacle)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Run eagerly inside the block: a pass without gradients would need a second compilation."""
        if self.path not in COMPILED:
            yield
        else:
            with torch.compiler.set_stance("force_eager"):
                yield


def acceleration_of(config: RunConfig, device: torch.device) -> Chosen:
    """How the updates of a run are executed on `device`; a path or a precision that cannot run there is refused."""
    training = config.training
    dtype = training.autocast_dtype(device)
    chosen = choose_acceleration(training.acceleration, device)
    return chosen.fusing(training.encoder_blocks, config.model.encoder, device, dtype)


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


def compile_blocks(model: WorldModel, *, is_fused: bool) -> None:
    """Compile the parts of `model` in place, each kind of block once; parameter names stay as they are.

    A compiled block serves all blocks of its shape, so that compiling takes a fraction of the time it takes for the
    encoder as a whole; a fused encoder's blocks have nothing to compile. The selector and the projectors are left
    alone: they are small, and a CUDA graph already removes the cost of their launches.
    """
    for block in (*(() if is_fused else model.encoder.blocks), *model.predictor.blocks):
        block.compile(dynamic=False)
    model.tokens = torch.compile(model.tokens, dynamic=False)  # type: ignore[method-assign]


WARM_UPS = 3
"""Updates before the recording: in them kernels are compiled and libraries choose algorithms."""


class GraphedUpdates:
    """`PlainUpdates` recorded as a CUDA graph and replayed; the warm-up updates before it are part of the training.

    What a call returns is overwritten by the next one. Random numbers continue their streams exactly as without a
    graph. The optimizer's learning rates must be tensors on the device (`build_optimizer(..., on_device=True)`).
    """

    def __init__(self, plain: PlainUpdates, device: torch.device) -> None:
        self.plain = plain
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._num_calls = 0

    def __call__(self, pixels: Tensor, actions: Tensor) -> StepResult:
        if self._graph is None and self._num_calls < WARM_UPS:
            self._num_calls += 1
            return self._warm_up(pixels, actions)
        if self._graph is None:
            self._record(pixels, actions)
        assert self._graph is not None
        self._pixels.copy_(pixels)
        self._actions.copy_(actions)
        self._graph.replay()
        return self._result

    def _warm_up(self, pixels: Tensor, actions: Tensor) -> StepResult:
        # On the stream that will be recorded: autograd remembers the stream its nodes were first used on.
        torch.cuda.synchronize(pixels.device)
        with torch.cuda.stream(self._stream):
            result = self.plain(pixels, actions)
        torch.cuda.synchronize(pixels.device)
        return result

    def _record(self, pixels: Tensor, actions: Tensor) -> None:
        self._pixels, self._actions = torch.empty_like(pixels), torch.empty_like(actions)
        graph = torch.cuda.CUDAGraph()
        for generator in self.plain.streams.generators():
            graph.register_generator_state(generator)
        torch.cuda.synchronize(pixels.device)
        with torch.cuda.graph(graph, stream=self._stream):
            self._result = self.plain(self._pixels, self._actions)
        self._graph = graph


def accelerated(plain: PlainUpdates, chosen: Chosen, device: torch.device) -> PlainUpdates | GraphedUpdates:
    """The same updates, executed as `chosen`; the model's blocks are fused or compiled in place."""
    if chosen.fused:
        from alewm.kernels.encoder_blocks import fuse_blocks  # Triton takes a second to import: only where it is used

        fuse_blocks(plain.model.encoder)
    if chosen.path in COMPILED:
        compile_blocks(plain.model, is_fused=chosen.fused)
    return GraphedUpdates(plain, device) if chosen.path in RECORDED else plain


_FRAMES = WindowShape().num_frames


def rehearse(config: RunConfig, device: torch.device) -> None:
    """Compile and record the updates of a run with a model that is thrown away; nothing where nothing is compiled."""
    chosen = acceleration_of(config, device)
    if chosen.path == "none":
        return
    update = updates_of(config, chosen, device)
    batch = random_batch(config, config.training.batch_size, device)
    with repeatable(config.training.deterministic):
        for _ in range(WARM_UPS + 1):  # the last of them is recorded
            update(*batch)
    torch.cuda.synchronize(device)
    del update, batch
    gc.collect()  # a recording and its model reference each other
    torch.cuda.empty_cache()


def random_batch(config: RunConfig, batch: int, where: torch.device) -> tuple[Tensor, Tensor]:
    """Random pixels and actions in the shapes that `config` expects."""
    size, generator = config.model.encoder.image_size, torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (batch, _FRAMES, size, size, 3), dtype=torch.uint8, generator=generator)
    actions = torch.randn(batch, _FRAMES - 1, config.model.action_dim, generator=generator)
    return pixels.to(where), actions.to(where)


def updates_of(config: RunConfig, chosen: Chosen, where: torch.device) -> PlainUpdates | GraphedUpdates:
    """Updates of a new model, executed as `chosen`."""
    model = build_world_model(config.model, torch.Generator().manual_seed(0)).to(where).train()
    plain = PlainUpdates(
        model,
        Objective(config.objective, config.model).to(where),
        build_optimizer(model, config.training.optim, on_device=chosen.path in RECORDED),
        RandomStreams(0, where),
        config.training,
    )
    return accelerated(plain, chosen, where)
