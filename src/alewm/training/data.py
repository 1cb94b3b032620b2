"""The data of a training run: a checked file, its splits, and batches of windows.

`WindowSource` and `WindowBatch` are what the trainer needs of data; `TrainingData` reads them from an episode file.
`batches_on` copies batches to the device while the previous update still runs.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from alewm.config import to_dict
from alewm.data import schema
from alewm.data.action_statistics import ActionStatistics
from alewm.data.collect import recipe_of
from alewm.data.frame_sources import verify_frames
from alewm.data.loader import LoaderConfig, WindowLoader
from alewm.data.splits import SplitBy, Splits, load_or_make_splits
from alewm.data.store import EpisodeStore
from alewm.data.windows import WindowShape
from alewm.distributed import num_ranks, this_rank
from alewm.errors import InputError
from alewm.shapes import Tensor
from alewm.training.checkpoint import SPLITS
from alewm.training.config import RunConfig


@runtime_checkable
class WindowBatch(Protocol):
    """One batch of this rank's windows."""

    def to(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Frames [B, F, Y, X, 3] and the normalised action blocks [B, F - 1, A] between them, on `device`."""
        ...


@runtime_checkable
class WindowSource(Protocol):
    """Batches of this rank's training windows, from a position that can be saved."""

    def forever(self) -> Iterator[WindowBatch]:
        """The batches that follow the current position, pass after pass."""
        ...

    def __len__(self) -> int:
        """Batches in one pass."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch handed out, as JSON values; equal on all ranks."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        ...


@runtime_checkable
class FiniteSource(WindowSource, Protocol):
    """A source that can be read to the end of a pass."""

    def __iter__(self) -> Iterator[WindowBatch]:
        """The rest of the current pass."""
        ...


@dataclass(frozen=True)
class RunWindows:
    """What a trainer reads."""

    training: WindowSource
    """This rank's training windows."""
    validation: Iterable[WindowBatch] = ()
    """Its validation windows, the same ones at every validation."""
    validation_apart: Mapping[str, Iterable[WindowBatch]] = field(default_factory=dict)
    """Validation windows per data set, if there are several, in the order in which training batches interleave them."""
    recalibration: Iterable[WindowBatch] = ()
    """Training windows from which BatchNorm statistics are recomputed, the same ones each time."""


class SameBatches:
    """The first batches of a loader, the same ones at every iteration."""

    def __init__(self, loader: FiniteSource, most: int) -> None:
        self._loader, self._most, self._beginning = loader, most, loader.state_dict()

    def __iter__(self) -> Iterator[WindowBatch]:
        """At most `most` batches from the loader's start."""
        self._loader.load_state_dict(self._beginning)
        return islice(iter(self._loader), self._most)


_UPDATES_IN_FLIGHT = 2
"""Updates enqueued ahead of the GPU; each holds a batch in its memory."""


def batches_on(device: torch.device, source: WindowSource) -> Iterator[tuple[Tensor, Tensor]]:
    """Pixels and actions of the batches that follow the source's position, on `device`.

    A batch is taken from the source when it is asked for, not before, so that the source's position is always that of
    the batch in use. On a GPU the next copy runs on a separate stream while updates compute.
    """
    if device.type != "cuda":
        for windows in source.forever():
            yield windows.to(device)
        return
    copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    in_flight = deque[torch.cuda.Event]()
    for windows in source.forever():
        main = torch.cuda.current_stream(device)
        in_flight.append(main.record_event())
        if len(in_flight) > _UPDATES_IN_FLIGHT:
            in_flight.popleft().synchronize()
        with torch.cuda.stream(copies):
            pixels, actions = windows.to(device)
        main.wait_stream(copies)
        for tensor in (pixels, actions):
            tensor.record_stream(main)
        yield pixels, actions


@dataclass(frozen=True)
class TrainingData:
    """Everything a run takes from its data file."""

    store: EpisodeStore
    splits: Splits
    statistics: ActionStatistics
    """Of the actions of training episodes."""
    shape: WindowShape
    """Of its windows."""

    @classmethod
    def open(cls, path: Path, config: RunConfig, split_by: SplitBy = "family") -> "TrainingData":
        """The data in `path`, checked whole and against `config`; splits are made and stored beside it if need be."""
        store = EpisodeStore.open(path)
        _check_fits(store, config)
        if store.frame_checksums() is None:
            # Files with checksums are checked whenever a loader opens them; others must be decoded once.
            verify_frames(store)
        splits = load_or_make_splits(store, split_by)
        return cls(store, splits, ActionStatistics.of_training(store, splits), config.windows)

    def identity(self) -> dict[str, Any]:
        """Identity of the data, independent of the file's path."""
        return {
            "fingerprint": self.store.fingerprint,
            "episodes": self.store.num_episodes,
            "frames": self.store.num_frames,
            **({"split": self.splits.variant} if self.splits.variant else {}),
        }

    def extras(self, config: RunConfig) -> dict[str, Any]:
        """What a checkpoint stores for evaluation: action statistics and the held-out episodes."""
        return {
            "task": config.task,
            "frame_skip": config.frame_skip,
            "action_statistics": self.statistics.to_dict(),
            "data": {"path": str(self.store.path.resolve()), **self.identity(), **recipe_of(self.store)},
            "held_out": {name: to_dict(self.splits)[name] for name in ("validation", "test")},
        }

    @property
    def notes(self) -> list[str]:
        """Warnings about the file."""
        return self.store.notes

    def sources(self, config: RunConfig) -> dict[str, Any]:
        """Where the data is, how it was made and how many windows an epoch of it has, for provenance."""
        return {**self.extras(config)["data"], "training_windows": self.num_windows("train")}

    def save_splits(self, run: Path) -> None:
        """Write which episodes were held out into the run folder."""
        self.splits.save(run / SPLITS)

    def windows(self, config: RunConfig, device: torch.device, num_threads: int = 0) -> RunWindows:
        """All windows of a run; validation windows are missing where there are too few for a batch."""
        training = config.training
        validation: Iterable[WindowBatch] = ()
        if size := self.validation_batch_size(config):
            held_out = self.loader("validation", config, device, num_threads, batch_size=size)
            validation = SameBatches(held_out, training.validation_batches)
        recalibration: Iterable[WindowBatch] = ()
        if training.recalibration_batches:
            again = self.loader("train", config, device, num_threads)
            recalibration = SameBatches(again, training.recalibration_batches)
        return RunWindows(self.loader("train", config, device, num_threads), validation, recalibration=recalibration)

    def num_windows(self, part: str) -> int:
        """Windows of the episodes of `part`: of training episodes, an epoch."""
        return len(self.store.windows(self.splits.part(part), self.shape))

    def validation_batch_size(self, config: RunConfig) -> int:
        """The training batch size, or the largest multiple of the ranks that the validation windows fill."""
        return min(config.training.batch_size, self.num_windows("validation") // num_ranks() * num_ranks())

    def loader(
        self,
        part: str,
        config: RunConfig,
        device: torch.device,
        num_threads: int = 0,
        *,
        batch_size: int | None = None,
    ) -> WindowLoader:
        """This rank's windows of the episodes of `part`, shuffled, in batches of the training's size if none is given.

        Validation windows are shuffled too: a batch of neighbouring windows is no sample of the latent's distribution.
        """
        return WindowLoader(
            self.store,
            self.splits.part(part),
            self.statistics,
            LoaderConfig(
                batch_size=batch_size or config.training.batch_size,
                seed=config.training.seed,
                num_threads=num_threads,
                image_size=config.model.encoder.image_size,
            ),
            shape=self.shape,
            rank=this_rank(),
            num_ranks=num_ranks(),
            pin_memory=device.type == "cuda",
        )


def _check_fits(store: EpisodeStore, config: RunConfig) -> None:
    task, label = store.attributes.get("task"), schema.frame_skip_of(store.path, store.attributes)
    if label is not None and label != config.frame_skip:
        raise InputError(
            f"{store.path} was made for a frame skip of {label}, but the configuration has {config.frame_skip}. Train "
            f"with --frame-skip {label}."
        )
    block = config.frame_skip * store.action_dim
    other_actions = f" model.action_dim={block}" if block != config.model.action_dim else ""
    if task is not None and task != config.task:
        raise InputError(
            f"{store.path} holds episodes of {task!r}, but the configuration is for {config.task!r}. Name a size "
            f"instead of a task (alewm train tiny --data {store.path}), which takes the task from the file, or keep "
            f"this configuration with --set task={task}{other_actions}"
        )
    if other_actions:
        expected = config.model.action_dim / config.frame_skip
        raise InputError(
            f"{store.path}, column 'action': {store.action_dim} numbers per action, but the configuration for "
            f"{config.task!r} expects {expected:g} (blocks of {config.model.action_dim} for {config.frame_skip} "
            f"steps). Choose the preset of the file's task, or take this one with --set{other_actions}"
        )
    size, (height, width, _) = config.model.encoder.image_size, store.frame_shape
    if min(height, width) < size:
        smaller = ", or train the size tiny, which reads 28 x 28" if min(height, width) >= 28 else ""
        raise InputError(
            f"{store.path} has frames of {height} x {width} pixels, but the encoder reads {size} x {size}. Record at "
            f"{size} pixels or more{smaller}."
        )
