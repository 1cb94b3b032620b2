"""Batches that interleave several data sets, window by window.

Window i of a global batch comes from data set i mod n, the data sets in the order in which they were given:

    batch of 7 from three data sets    a b c a b c a

So every data set has an equal share, and where the batch does not divide evenly the first data sets have one window
more. Every data set keeps its own order and its own passes: one that is shorter begins anew while another goes on.

Several ranks hold consecutive equal parts of the global batch. For each part to hold the same mixture, and to be what
every data set's own loader gives that rank, the batch must be a multiple of data sets times ranks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alewm.data.checks import read_label
from alewm.data.loader import WindowLoader, Windows
from alewm.data.splits import SplitBy
from alewm.distributed import num_ranks
from alewm.errors import InputError
from alewm.shapes import Float, Tensor
from alewm.training.checkpoint import DATA_SETS, splits_name
from alewm.training.config import RunConfig
from alewm.training.data import RunWindows, SameBatches, TrainingData, WindowBatch
from alewm.workers import num_available_cores


def shares(batch_size: int, num_sets: int, num_ranks: int = 1) -> tuple[int, ...]:
    """How many of `batch_size` windows come from each data set."""
    if num_ranks > 1 and batch_size % (num_sets * num_ranks):
        raise InputError(
            f"A batch of {batch_size} windows does not divide evenly over {num_sets} data sets and {num_ranks} "
            f"processes; choose a batch size that is a multiple of {num_sets * num_ranks}."
        )
    if batch_size < num_sets:
        raise InputError(
            f"A batch of {batch_size} has no window for each of {num_sets} data sets; choose a larger one."
        )
    return tuple(batch_size // num_sets + (number < batch_size % num_sets) for number in range(num_sets))


def take_turns(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all `parts` in one tensor, row i from part i mod n."""
    whole = parts[0].new_empty(sum(map(len, parts)), *parts[0].shape[1:])
    for number, part in enumerate(parts):
        rows_of_set(whole, number, len(parts)).copy_(part)
    return whole


def rows_of_set(whole: Tensor, number: int, num_sets: int) -> Tensor:
    """The rows of a batch that come from one data set."""
    return whole[number::num_sets]


def mean_q_of_sets(q: Float[Tensor, "B C"], names: Sequence[str]) -> dict[str, Float[Tensor, "C"]]:
    """The mean q over the rows of each data set, named `q/NAME`."""
    return {f"q/{name}": rows_of_set(q, number, len(names)).mean(0) for number, name in enumerate(names)}


@dataclass(frozen=True)
class MixedBatch:
    """One batch per data set, interleaved on the device."""

    parts: tuple[Windows, ...]

    def to(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Frames and normalised action blocks, interleaved."""
        pixels, actions = zip(*(part.to(device) for part in self.parts), strict=True)
        mixed = take_turns(pixels), take_turns(actions)
        if device.type == "cpu":
            # On a CPU `to` shares the memory of the parts; they have been copied now.
            for part in self.parts:
                part.release()
        return mixed


class MixedWindows:
    """The batches of several loaders, mixed; a `WindowSource`.

    A pass over it, an epoch, has as many batches as all windows together fill. In it a data set with more windows than
    its equal share is not seen whole, and one with fewer is seen more than once.
    """

    def __init__(self, loaders: Mapping[str, WindowLoader]) -> None:
        self._loaders = dict(loaders)

    def forever(self) -> Iterator[MixedBatch]:
        """Batches without end."""
        for parts in zip(*(loader.forever() for loader in self._loaders.values()), strict=True):
            yield MixedBatch(parts)

    def __iter__(self) -> Iterator[MixedBatch]:
        """Batches until one of the data sets is at the end of its own pass."""
        for parts in zip(*map(iter, self._loaders.values()), strict=False):
            yield MixedBatch(parts)

    def __len__(self) -> int:
        loaders = self._loaders.values()
        return sum(loader.num_windows for loader in loaders) // sum(loader.config.batch_size for loader in loaders)

    def state_dict(self) -> dict[str, Any]:
        """The position in every data set."""
        return {name: loader.state_dict() for name, loader in self._loaders.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if list(state) != list(self._loaders):
            raise InputError(
                f"The saved position is in the data sets {list(state)}, this run has {list(self._loaders)}."
            )
        for name, loader in self._loaders.items():
            loader.load_state_dict(state[name])


@dataclass(frozen=True)
class MixedData:
    """Everything a run takes from its data files; what `TrainingData` is for one."""

    sets: dict[str, TrainingData]
    """By the data set's name, in the order in which batches interleave them."""

    @classmethod
    def open(cls, paths: Sequence[Path], config: RunConfig, split_by: SplitBy = "family") -> "MixedData":
        """The data in `paths`, one file for each data set of `config`; action statistics and splits are per file."""
        _check_action_dims(paths)
        opened = {
            name: TrainingData.open(path, own, split_by)
            for path, (name, own) in zip(paths, own_configs(config).items(), strict=True)
        }
        _check_differ(opened)
        return cls(opened)

    def identity(self) -> dict[str, Any]:
        """Identity of the data, by data set."""
        return {name: data.identity() for name, data in self.sets.items()}

    def extras(self, config: RunConfig) -> dict[str, Any]:
        """What a checkpoint carries, by data set (`data_sets_of` reads it)."""
        own = own_configs(config)
        return {
            "frame_skip": config.frame_skip,
            DATA_SETS: {name: data.extras(own[name]) for name, data in self.sets.items()},
        }

    @property
    def notes(self) -> list[str]:
        """Warnings about the files."""
        return [note for data in self.sets.values() for note in data.notes]

    def sources(self, config: RunConfig) -> dict[str, Any]:
        """Where the data is and how it was made, by data set."""
        own = own_configs(config)
        return {name: data.sources(own[name]) for name, data in self.sets.items()}

    def save_splits(self, run: Path) -> None:
        """Write which episodes were held out into the run folder, a file per data set."""
        for name, data in self.sets.items():
            data.splits.save(run / splits_name(name))

    def windows(self, config: RunConfig, device: torch.device, num_threads: int = 0) -> RunWindows:
        """All windows of a run: batches to which every data set contributes equally, and each one's own validation."""
        own = own_configs(config)
        # The loaders share the threads of one.
        threads = max(1, (num_threads or num_available_cores()) // len(self.sets))
        size = min(data.validation_batch_size(own[name]) for name, data in self.sets.items())

        def loaders(part: str, batch_size: int | None = None) -> dict[str, WindowLoader]:
            return {
                name: data.loader(part, own[name], device, threads, batch_size=batch_size)
                for name, data in self.sets.items()
            }

        training = MixedWindows(loaders("train"))
        recalibration: Iterable[WindowBatch] = ()
        if count := config.training.recalibration_batches:
            recalibration = SameBatches(MixedWindows(loaders("train")), count)
        if size == 0:
            return RunWindows(training, validation_apart=dict.fromkeys(self.sets, ()), recalibration=recalibration)
        held_out, most = loaders("validation", size), config.training.validation_batches
        apart = {name: SameBatches(loader, most) for name, loader in held_out.items()}
        return RunWindows(training, SameBatches(MixedWindows(held_out), most), apart, recalibration)


def own_configs(config: RunConfig) -> dict[str, RunConfig]:
    """Per data set, the configuration of a run on it alone: its share of the batch and its own shuffling seed."""
    sets, training = config.data_sets, config.training
    sizes = shares(training.batch_size, len(sets), num_ranks())
    return {
        name: replace(config, task=task, training=replace(training, batch_size=size, seed=_own_seed(training.seed, i)))
        for i, ((name, task), size) in enumerate(zip(sets.items(), sizes, strict=True))
    }


def _own_seed(seed: int, number: int) -> int:
    """A seed per data set, so that files of equal length are shuffled differently."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _check_action_dims(paths: Sequence[Path]) -> None:
    dims = {path: read_label(path).action_dim for path in paths}
    if len(set(dims.values())) > 1:
        found = ", ".join(f"{path} has {dim}" for path, dim in dims.items())
        raise InputError(
            f"One model reads actions of one size, but the files differ in numbers per action: {found}. Train them in "
            f"separate runs."
        )


def _check_differ(opened: dict[str, TrainingData]) -> None:
    known: dict[str, Path] = {}
    for data in opened.values():
        path = data.store.path
        if other := known.get(data.store.fingerprint):
            raise InputError(f"{other} and {path} hold the same data. Name every data set once.")
        known[data.store.fingerprint] = path
