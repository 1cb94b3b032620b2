"""One training run of an experiment: a complete configuration, its name, and the command that repeats it."""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from alewm.config import changed_fields, overridden, to_dict
from alewm.training.config import RunConfig
from alewm.training.presets import preset

NUM_WINDOWS = {"two-room": 730_809, "push-t": 1_981_721, "reacher": 1_820_000, "cube": 1_820_000}
"""Windows in the published file of each task; only estimates of time use them."""

OBSERVED = frozenset(
    {"log_every", "diagnose_every", "validate_every", "validation_batches", "checkpoint_every", "keep_checkpoints"}
)
"""Fields of the training that say when it is watched and saved; its weights do not depend on them."""


@dataclass(frozen=True)
class Run:
    """A configuration to train once per data file, whoever asks for it."""

    preset: str
    """The preset it is nearest to."""
    config: RunConfig
    """Everything that decides it, seed included."""

    @property
    def seed(self) -> int:
        """Of first weights, shuffling and noise."""
        return self.config.training.seed

    @property
    def task(self) -> str:
        """Whose episodes it learns from."""
        return self.config.task

    @property
    def data_sets(self) -> tuple[str, ...]:
        """The names of what it learns from; most runs have one, named like the task."""
        return tuple(self.config.data_sets)

    @cached_property
    def key(self) -> str:
        """A hash of the configuration."""
        return config_key(to_dict(self.config))

    @property
    def name(self) -> str:
        """The run's folder, readable and unambiguous."""
        return f"{self.preset}-{self.seed}-{self.key[:8]}"

    @property
    def num_updates(self) -> int:
        """Updates in all, on a file of the published size."""
        num_windows = sum(NUM_WINDOWS[task] for task in self.config.data_sets.values())
        return self.config.training.total_steps(num_windows // self.config.training.batch_size)

    def command(self, data: Sequence[Path], out: Path) -> str:
        """What trains it from a shell."""
        changes = changed_fields(self.config, preset(self.preset))
        seed = changes.pop("training.seed", self.seed)
        settings = [f"{name}={json.dumps(value)}" for name, value in changes.items()]
        files = [word for path in data for word in ("--data", str(path))]
        words = ["alewm", "train", self.preset, *files, "--out", str(out), "--seed", str(seed)]
        return shlex.join([*words, *(["--set", *settings] if settings else [])])

    def with_fields(self, changes: Mapping[str, Any]) -> "Run":
        """The run with other values in the fields `changes` names by dotted path."""
        return Run(self.preset, overridden(self.config, changes))


def config_key(config: Mapping[str, Any]) -> str:
    """A hash of a configuration as `to_dict` gives it; the data a run adds to its config.json does not count."""
    counted = {name: value for name, value in config.items() if name != "data"}
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()


def weights_key(config: Mapping[str, Any]) -> str:
    """The same of what decides the weights at the end: how often a run was looked at and saved does not."""
    training = {name: value for name, value in config["training"].items() if name not in OBSERVED}
    return config_key({**config, "training": training})
