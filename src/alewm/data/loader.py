"""Frames that threads decode ahead: training windows in batches, and all frames of some rows, once.

Windows are the same for a seed whatever the number of threads, processes or interruptions. Batch memory is reused,
because fresh pages cost as much as decoding into them.
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from types import TracebackType
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from alewm.config import Count, CountOrZero, check_ranges
from alewm.data.action_statistics import ActionStatistics
from alewm.data.frame_sources import open_frames, stored_frames
from alewm.data.store import EpisodeStore
from alewm.data.windows import WindowShape
from alewm.errors import InputError
from alewm.shapes import Float, Tensor, UInt8
from alewm.workers import num_available_cores


@dataclass
class Buffer:
    """Buffer for the frames of one batch."""

    pixels: Tensor
    copied: torch.cuda.Event | None = None
    """Event after which the device has read the frames; the buffer must not be overwritten before."""


class BufferPool:
    """Buffers of one shape, handed out and taken back."""

    def __init__(self, shape: tuple[int, ...], pin_memory: bool) -> None:
        self._shape = shape
        self._pin_memory = pin_memory
        self._free: deque[Buffer] = deque()

    def take(self) -> Buffer:
        """A free buffer: the one released longest ago, else a new one."""
        if not self._free:
            return Buffer(torch.empty(self._shape, dtype=torch.uint8, pin_memory=self._pin_memory))
        buffer = self._free.popleft()
        if buffer.copied is not None:
            buffer.copied.synchronize()
            buffer.copied = None
        return buffer

    def give_back(self, buffer: Buffer) -> None:
        """Release `buffer` for reuse."""
        self._free.append(buffer)

    def give_back_after_copy(self, buffer: Buffer, device: torch.device) -> None:
        """Take `buffer` back once the copy to `device` that was just enqueued is done."""
        if self._pin_memory and device.type == "cuda":
            buffer.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            buffer.copied.record(torch.cuda.current_stream(device))
        self._free.append(buffer)


Item = TypeVar("Item")


def _when_read(begun: Iterator[tuple[Item, Sequence[Future[None]]]], num_ahead: int) -> Generator[Item, None, None]:
    """The items of `begun`, each once its tasks are done; those of the next `num_ahead` are under way meanwhile."""
    pending: deque[tuple[Item, Sequence[Future[None]]]] = deque()
    try:
        while True:
            pending.extend(islice(begun, num_ahead + 1 - len(pending)))
            if not pending:
                return
            item, tasks = pending.popleft()
            for task in tasks:
                task.result()
            yield item
    finally:
        for _, tasks in pending:
            for task in tasks:
                task.cancel()


_FRAMES_AT_ONCE = 256


def _parts_ahead(device: torch.device) -> int:
    """On a CPU the encoder wants every core; elsewhere as many threads, and 38 MB for each at 224 pixels."""
    return 0 if device.type == "cpu" else 4


def frames_ahead(
    store: EpisodeStore, rows: np.ndarray, device: torch.device
) -> Generator[tuple[slice, UInt8[Tensor, "n Y X 3"]], None, None]:
    """The stored frames at `rows` on `device`, in parts, each with the slice of `rows` that it is.

    While a GPU works on one part, threads check and decode those after it. A part's memory is used again as soon as the
    next one is asked for.
    """
    source, num_ahead = stored_frames(store), _parts_ahead(device)
    sizes = [len(part) for part in np.array_split(rows, -(-len(rows) // _FRAMES_AT_ONCE))]
    buffers = BufferPool((sizes[0], *source.shape), pin_memory=device.type == "cuda")

    def read(part: slice, buffer: Buffer) -> None:
        source.check(rows[part])
        source.read(rows[part], buffer.pixels[: part.stop - part.start].numpy())

    def begin(part: slice, buffer: Buffer) -> list[Future[None]]:
        if num_ahead:
            return [readers.submit(read, part, buffer)]
        read(part, buffer)
        return []

    with ThreadPoolExecutor(max(1, num_ahead), thread_name_prefix="frames") as readers:
        parts = ((slice(*ends), buffers.take()) for ends in pairwise(accumulate(sizes, initial=0)))
        for part, buffer in _when_read(((each, begin(*each)) for each in parts), num_ahead):
            pixels = buffer.pixels[: part.stop - part.start]
            if device.type == "cpu":
                yield part, pixels
                buffers.give_back(buffer)
            else:
                pixels = pixels.to(device, non_blocking=device.type == "cuda")
                buffers.give_back_after_copy(buffer, device)
                yield part, pixels


_FRAMES_PER_TASK = 16
"""About a millisecond of decoding, where the threads have enough to do."""


@dataclass(frozen=True)
class LoaderConfig:
    """How windows are drawn and decoded."""

    batch_size: Count = 128
    """Windows in a global batch, over all processes."""

    seed: CountOrZero = 3072
    """Of the order of windows; each epoch has its own order."""

    shuffle: bool = True
    """Draw windows in random order; otherwise in the order of the file."""

    num_threads: CountOrZero = 0
    """Threads that decode frames; 0 for one per available core."""

    prefetch_batches: CountOrZero = 2
    """Batches decoded ahead of the one in use."""

    image_size: CountOrZero = 0
    """Average frames down to this width and height; 0 keeps them as stored."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class Windows:
    """A batch of windows.

    Its memory is its own for as long as it is referenced. `to` and `release` hand that memory back to the loader for
    later batches, which saves allocating it anew: use nothing of the batch afterwards.
    """

    pixels: UInt8[Tensor, "B F Y X 3"]
    actions: Float[Tensor, "B G A"]
    """Normalised action blocks, G = F - 1: block f leads from frame f to frame f + 1."""

    _buffer: Buffer
    _pool: BufferPool

    def to(self, device: torch.device) -> tuple[UInt8[Tensor, "B F Y X 3"], Float[Tensor, "B G A"]]:
        """Pixels and actions on `device`; from pinned memory the copy overlaps with what the device is doing."""
        if device.type == "cpu":
            return self.pixels, self.actions
        # Elsewhere the memory could be handed back before a copy that was not awaited has read it.
        overlaps = device.type == "cuda"
        copies = (self.pixels.to(device, non_blocking=overlaps), self.actions.to(device, non_blocking=overlaps))
        self._pool.give_back_after_copy(self._buffer, device)
        return copies

    def release(self) -> None:
        """Hand the memory back now."""
        self._pool.give_back(self._buffer)


class _Position(NamedTuple):
    epoch: int
    step: int


class WindowLoader:
    """Batches of the windows of some episodes, decoded ahead by threads.

    Each epoch is one permutation of all windows, cut into global batches (the incomplete last one is dropped); rank r
    of R takes the r-th of R equal parts of every batch. So the batches of all ranks, put together in rank order, are
    those of a single process. `state_dict` says which batch comes next, and a loader that loads it continues there.
    """

    def __init__(
        self,
        store: EpisodeStore,
        episodes: Sequence[int],
        statistics: ActionStatistics,
        config: LoaderConfig = LoaderConfig(),  # noqa: B008 (frozen)
        *,
        shape: WindowShape = WindowShape(),  # noqa: B008 (frozen)
        rank: int = 0,
        num_ranks: int = 1,
        pin_memory: bool = False,
    ) -> None:
        if statistics.action_dim != store.action_dim:
            raise InputError(
                f"The statistics are for actions of {statistics.action_dim} numbers, but {store.path} has "
                f"{store.action_dim}."
            )
        if config.batch_size % num_ranks:
            raise InputError(
                f"The global batch of {config.batch_size} windows cannot be shared equally by {num_ranks} processes; "
                f"choose a multiple of {num_ranks}."
            )
        numbers = sorted(episodes)
        self.config = config
        self.shape = shape
        self.index = store.windows(numbers, shape)
        if len(self.index) < config.batch_size:
            raise InputError(
                f"{store.path} has too little to train on: its {len(numbers)} training episodes hold {len(self.index)} "
                f"windows of {shape.span} rows, fewer than one batch of {config.batch_size}. Record more episodes, or "
                f"choose a smaller --batch-size."
            )
        self._rank = rank
        self._num_threads = config.num_threads or num_available_cores()
        self._actions = statistics.normalize(store.actions)
        self.frames = open_frames(
            store,
            numbers,
            image_size=config.image_size or None,
            num_threads=self._num_threads,
        )
        self._local_batch = config.batch_size // num_ranks
        self._pool = BufferPool((self._local_batch, shape.num_frames, *self.frames.shape), pin_memory)
        self._threads = ThreadPoolExecutor(self._num_threads, thread_name_prefix="windows")
        self._next = _Position(0, 0)
        self._order: tuple[int, np.ndarray] | None = None

    @property
    def num_windows(self) -> int:
        """Windows of all episodes, over all processes."""
        return len(self.index)

    def __len__(self) -> int:
        return self.num_windows // self.config.batch_size

    def __iter__(self) -> Iterator[Windows]:
        """The rest of the current epoch."""
        return self._batches(stop_after_epoch=self._next.epoch)

    def forever(self) -> Generator[Windows, None, None]:
        """Batches of this epoch and all that follow, without a pause between them."""
        return self._batches(stop_after_epoch=None)

    def state_dict(self) -> dict[str, int]:
        """The position of the next batch, and what it depends on."""
        return {
            "epoch": self._next.epoch,
            "step": self._next.step,
            "seed": self.config.seed,
            "batch_size": self.config.batch_size,
            "num_windows": self.num_windows,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue at the position of `state`, which must come from a loader of the same windows in the same order."""
        for name, value in self.state_dict().items():
            if name not in ("epoch", "step") and state.get(name) != value:
                raise InputError(f"The saved loader position has {name} {state.get(name)}, this loader has {value}.")
        self._next = _Position(state["epoch"], state["step"])

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> "WindowLoader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _batches(self, stop_after_epoch: int | None) -> Generator[Windows, None, None]:
        for position, windows in _when_read(self._begun(stop_after_epoch), self.config.prefetch_batches):
            self._next = position
            yield windows

    def _begun(
        self, stop_after_epoch: int | None
    ) -> Iterator[tuple[tuple[_Position, Windows], Sequence[Future[None]]]]:
        """Every batch with the position after it, and the tasks that decode it."""
        ahead = self._next
        while stop_after_epoch is None or ahead.epoch <= stop_after_epoch:
            windows, tasks = self._begin(ahead)
            ahead = self._after(ahead)
            yield (ahead, windows), tasks

    def _after(self, position: _Position) -> _Position:
        last = position.step + 1 == len(self)
        return _Position(position.epoch + 1, 0) if last else _Position(position.epoch, position.step + 1)

    def _begin(self, position: _Position) -> tuple[Windows, list[Future[None]]]:
        first = position.step * self.config.batch_size + self._rank * self._local_batch
        starts = self.index.starts(self._epoch_order(position.epoch)[first : first + self._local_batch])
        actions = torch.from_numpy(self.shape.action_blocks(self._actions, starts))
        buffer = self._pool.take()
        rows = self.shape.frame_rows(starts).reshape(-1)
        out = buffer.pixels.numpy().reshape(len(rows), *self.frames.shape)
        bounds = np.linspace(0, len(rows), self._num_tasks(len(rows)) + 1).astype(int).tolist()
        tasks = [self._threads.submit(self.frames.read, rows[a:b], out[a:b]) for a, b in pairwise(bounds)]
        return Windows(buffer.pixels, actions, buffer, self._pool), tasks

    def _num_tasks(self, num_frames: int) -> int:
        """Small tasks balance the load; large ones spend less time under the interpreter lock."""
        wanted = num_frames // _FRAMES_PER_TASK
        return min(num_frames, max(self._num_threads, min(wanted, 4 * self._num_threads)))

    def _epoch_order(self, epoch: int) -> np.ndarray:
        if self._order is None or self._order[0] != epoch:
            windows = np.arange(self.num_windows)
            if self.config.shuffle:
                windows = np.random.default_rng([self.config.seed, epoch]).permutation(windows)
            self._order = (epoch, windows)
        return self._order[1]
