"""The data of a run that learns from several files, each opened as for a run of its own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alewm.data.label import read_label
from alewm.data.splits import SplitBy
from alewm.data.windows import FRAME_SKIP
from alewm.distributed import num_ranks
from alewm.errors import InputError
from alewm.training.config import RunConfig
from alewm.training.data import TrainingData
from alewm.training.data_sets import DATA_SETS, splits_name
from alewm.training.mixture import MixedWindows, shares
from alewm.training.source import RunWindows, SameBatches, WindowBatch
from alewm.workers import num_available_cores


@dataclass(frozen=True)
class MixedData:
    """Everything a run takes from its data files; what `TrainingData` is for one."""

    sets: dict[str, TrainingData]
    """By the data set's name, in the order in which they take turns."""

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
        """What tells this data from other data, by data set."""
        return {name: data.identity() for name, data in self.sets.items()}

    def extras(self, config: RunConfig) -> dict[str, Any]:
        """What a checkpoint carries, by data set (`data_sets_of` reads it)."""
        own = own_configs(config)
        return {
            "frame_skip": FRAME_SKIP,
            DATA_SETS: {name: data.extras(own[name]) for name, data in self.sets.items()},
        }

    @property
    def notes(self) -> list[str]:
        """What was accepted in the files but deserves a word."""
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
        # Together the loaders have as many threads as one would have alone.
        threads = max(1, (num_threads or num_available_cores()) // len(self.sets))
        training = {name: data.training_windows(own[name], device, threads) for name, data in self.sets.items()}
        size = min(data.validation_batch_size(own[name]) for name, data in self.sets.items())
        recalibration: Iterable[WindowBatch] = ()
        if count := config.training.recalibration_batches:
            again = {name: data.training_windows(own[name], device, threads) for name, data in self.sets.items()}
            recalibration = SameBatches(MixedWindows(again), count)
        if size == 0:
            nothing = dict.fromkeys(self.sets, ())
            return RunWindows(MixedWindows(training), validation_apart=nothing, recalibration=recalibration)
        held_out = {name: data.validation_loader(own[name], size, device, threads) for name, data in self.sets.items()}
        most = config.training.validation_batches
        apart = {name: SameBatches(loader, most) for name, loader in held_out.items()}
        return RunWindows(MixedWindows(training), SameBatches(MixedWindows(held_out), most), apart, recalibration)


def own_configs(config: RunConfig) -> dict[str, RunConfig]:
    """For each data set the configuration of a run on it alone, with its share of the batch and an order of its own."""
    sets, training = config.data_sets, config.training
    sizes = shares(training.batch_size, len(sets), num_ranks())
    return {
        name: replace(config, task=task, training=replace(training, batch_size=size, seed=_own_seed(training.seed, i)))
        for i, ((name, task), size) in enumerate(zip(sets.items(), sizes, strict=True))
    }


def _own_seed(seed: int, number: int) -> int:
    """Two files of equally many windows shall not be read in the same order."""
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
