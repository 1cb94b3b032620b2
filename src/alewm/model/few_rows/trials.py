"""The kernels of a rollout on random rows, to choose their tiles by time."""

from collections.abc import Callable, Iterator

import torch

from alewm.model.few_rows.halves import Reader, Stream, attention_half, mlp_half
from alewm.model.fused.tiles import Tile
from alewm.model.fused.trials import Trial
from alewm.model.prepared import PreparedWeights


def few_rows_trials(weights: PreparedWeights, num_samples: int, num_calls: int) -> Iterator[Trial]:
    """Both halves of the first block, each called `num_calls` times: the newest of three positions, and all three."""
    block, device, dtype, W = weights.blocks[0], weights.position.device, weights.dtype, weights.width
    generator = torch.Generator(device).manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    (inner, _), (hidden, _) = block.output.weight.shape, block.narrow.weight.shape
    arrived = torch.zeros(3 * num_samples, dtype=torch.int32, device=device)
    kept = [draw(num_samples, 2 * inner).to(dtype) for _ in range(2)]
    for T, past in ((1, kept), (3, [])):
        stream = Stream(draw(num_samples, T, W), draw(num_samples, T, W).to(dtype))
        gate, shift, scale = draw(num_samples, T, 3 * W).to(dtype).chunk(3, -1)
        reader = Reader(block.norm_mlp, shift, scale)

        def attend(tile: Tile, stream=stream, past=past, gate=gate, reader=reader) -> None:  # type: ignore[no-untyped-def]
            attention_half(stream, block.qkv, block.output, weights.num_heads, past, gate, reader, arrived, tile)

        def feed(tile: Tile, stream=stream, gate=gate, reader=reader) -> None:  # type: ignore[no-untyped-def]
            mlp_half(stream, block.widen, block.narrow, gate, reader, arrived, tile)

        rows, size = num_samples * T, dtype.itemsize
        yield Trial(
            f"few_rows_attention_{min(T, 2)}",
            inner,
            _often(attend, num_calls),
            num_calls * rows * ((8 + 2 * size) * W + (4 * size * inner if past else 0)),
            num_calls * 8 * rows * W * inner,
        )
        yield Trial(
            f"few_rows_mlp_{min(T, 2)}",
            hidden,
            _often(feed, num_calls),
            num_calls * rows * (8 + 2 * size) * W,
            num_calls * 4 * rows * W * hidden,
        )


def _often(call: Callable[[Tile], None], num_calls: int) -> Callable[[Tile], None]:
    def called(tile: Tile) -> None:
        for _ in range(num_calls):
            call(tile)

    return called
