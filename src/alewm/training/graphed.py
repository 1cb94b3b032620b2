"""Updates recorded once as a CUDA graph and replayed: a step of a thousand small kernels costs one launch."""

import torch

from alewm.shapes import Tensor
from alewm.training.acceleration import COMPILED, RECORDED, UpdatePath, compile_blocks, fuse_encoder
from alewm.training.step import PlainUpdates, StepResult

WARM_UPS = 3
"""Updates made operation by operation first, in which kernels are compiled and libraries choose theirs."""


class GraphedUpdates:
    """`PlainUpdates`, replayed. The warm-up updates are real ones, so nothing is computed that does not count.

    What a call returns is overwritten by the next one. Random numbers continue their streams exactly as without a
    graph. The optimizer's learning rates must be tensors on the device (`build_optimizer(..., on_device=True)`).
    """

    def __init__(self, plain: PlainUpdates, device: torch.device) -> None:
        self.plain = plain
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._num_calls = 0

    def __call__(self, pixels: Tensor, actions: Tensor) -> StepResult:
        """Change the weights by one step."""
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


def accelerated(
    plain: PlainUpdates, path: UpdatePath, device: torch.device, *, fused: bool = False
) -> "PlainUpdates | GraphedUpdates":
    """The same updates, executed as `path` and `fused` say; the model's blocks are fused or compiled in place."""
    if fused:
        fuse_encoder(plain.model)
    if path in COMPILED:
        compile_blocks(plain.model, is_fused=fused)
    return GraphedUpdates(plain, device) if path in RECORDED else plain
