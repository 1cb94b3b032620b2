"""Training runs by configuration, and the work on them: training and evaluation, each done once.

Finished runs are found and reused by config hash.
"""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from alewm.config import changed_fields, to_dict
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from alewm.evaluation.evaluate_run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings, results_folder
from alewm.evaluation.statistics import Spread
from alewm.files import read_if_there, read_json
from alewm.runs.folder import RunFolder
from alewm.training.config import RunConfig
from alewm.training.presets import preset
from alewm.training.train_run import train_run

OBSERVED = frozenset(
    {"log_every", "diagnose_every", "validate_every", "validation_batches", "checkpoint_every", "keep_checkpoints"}
)
"""Training fields about logging and saving, on which the weights do not depend."""


@dataclass(frozen=True)
class TrainingRun:
    """A configuration, trained once per data file."""

    preset: str
    """The preset it was made from."""
    config: RunConfig
    """Its complete configuration, with the seed."""

    @property
    def seed(self) -> int:
        return self.config.training.seed

    @property
    def task(self) -> str:
        return self.config.task

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Names of its data sets; most runs have one, named after the task."""
        return tuple(self.config.data_sets)

    @cached_property
    def key(self) -> str:
        return config_key(to_dict(self.config))

    @property
    def name(self) -> str:
        """The run's folder, readable and unambiguous."""
        return f"{self.preset}-{self.seed}-{self.key[:8]}"

    def command(self, data: Sequence[Path], out: Path) -> str:
        changes = changed_fields(self.config, preset(self.preset))
        seed = changes.pop("training.seed", self.seed)
        settings = [f"{name}={json.dumps(value)}" for name, value in changes.items()]
        files = [word for path in data for word in ("--data", str(path))]
        words = ["alewm", "train", self.preset, *files, "--out", str(out), "--seed", str(seed)]
        return shlex.join([*words, *(["--set", *settings] if settings else [])])


def config_key(config: Mapping[str, Any]) -> str:
    """A hash of a configuration as `to_dict` gives it; the data a run adds to its config.json does not count."""
    counted = {name: value for name, value in config.items() if name != "data"}
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()


def weights_key(config: Mapping[str, Any]) -> str:
    """A hash of the fields that decide the final weights: how often a run was validated and saved does not count."""
    training = {name: value for name, value in config["training"].items() if name not in OBSERVED}
    return config_key({**config, "training": training})


def unique(runs: Sequence[TrainingRun]) -> tuple[TrainingRun, ...]:
    """The runs without repetition: two presets may name one configuration."""
    return tuple({run.key: run for run in reversed(runs)}.values())[::-1]


class Library:
    """Run folders directly below `root`, and data files `NAME.h5` in `data`, named like their task.

    `data` may itself be a file, that of the only task, also one that is still to be made.
    """

    def __init__(self, root: Path, data: Path) -> None:
        self.root, self.data = root, data
        self._fingerprints: dict[str, str] = {}

    def data_path(self, task: str) -> Path:
        """The episodes of `task`."""
        is_file = self.data.is_file() or (self.data.suffix == ".h5" and not self.data.is_dir())
        return self.data if is_file else self.data / f"{task}.h5"

    def data_paths(self, run: TrainingRun) -> tuple[Path, ...]:
        """What `run` learns from, in order."""
        return tuple(self.data_path(name) for name in run.data_sets)

    def check_data(self, tasks: set[str]) -> None:
        """Refuse to start while a data file is missing."""
        missing = sorted(task for task in tasks if not self.data_path(task).is_file())
        if missing:
            commands = "\n".join(f"  alewm collect {task} --out {self.data_path(task)}" for task in missing)
            raise InputError(
                f"There is no data for {', '.join(missing)} in {self.data}. Record it, or put published files there "
                f"under the names in these commands:\n{commands}"
            )

    def folder(self, run: TrainingRun) -> Path:
        """Where `run` is, or will be; two presets that name one configuration share a folder.

        A finished run that differs only in logging and saving has the same weights and is reused.
        """
        if run.key not in self._known:
            self._known[run.key] = self._finished.get(weights_key(to_dict(run.config)), self.root / run.name)
        return self._known[run.key]

    def holding(self, *runs: TrainingRun) -> "Library":
        """A copy that knows only `runs`: small enough to be sent to another machine."""
        library = Library(self.root, self.data)
        library._known = {run.key: self.folder(run) for run in runs}
        return library

    def below(self, folder: Path) -> "Library":
        """A copy with paths below `folder`, for a process with another working directory."""
        library = Library(folder / self.root, folder / self.data)
        library._known = {key: folder / path for key, path in self._known.items()}
        return library

    def is_trained(self, run: TrainingRun) -> bool:
        """Whether it has been trained to its end, on the data that is here now."""
        folder = self.folder(run)
        if "training" not in RunFolder(folder).result():
            return False
        data = read_json(folder / "config.json").get("data", {})
        for name in run.data_sets:
            found = (data[name] if len(run.data_sets) > 1 else data).get("fingerprint")
            if found != self._fingerprint(name):
                raise InputError(
                    f"{folder} was trained on data with fingerprint {found}, but {self.data_path(name)} has "
                    f"{self._fingerprint(name)}. Give the data it was trained on with --data, or another --runs."
                )
        return True

    def command(self, run: TrainingRun) -> str:
        return run.command(self.data_paths(run), self.folder(run))

    def known_folders(self) -> tuple[Path, ...]:
        """All folders of runs, finished or not."""
        return tuple(self._known.values())

    @cached_property
    def _known(self) -> dict[str, Path]:
        # Where two folders hold one configuration, a finished one is found.
        found = dict(sorted(self._configs.items(), key=lambda each: _is_finished(each[0])))
        return {config_key(config): folder for folder, config in found.items()}

    @cached_property
    def _finished(self) -> dict[str, Path]:
        """Finished runs by what decides their weights."""
        return {weights_key(config): folder for folder, config in self._configs.items() if _is_finished(folder)}

    @cached_property
    def _configs(self) -> dict[Path, dict[str, Any]]:
        paths = sorted(self.root.glob("*/config.json")) if self.root.is_dir() else []
        found = {path.parent: read_json(path) for path in paths}
        return {folder: config for folder, config in found.items() if "objective" in config}

    def _fingerprint(self, task: str) -> str:
        if task not in self._fingerprints:
            with EpisodeStore.open(self.data_path(task)) as store:
                self._fingerprints[task] = store.fingerprint
        return self._fingerprints[task]


def _is_finished(folder: Path) -> bool:
    return (folder / "result.json").exists()


class NotThereYetError(LookupError):
    """A result was asked for that no run folder has."""


@runtime_checkable
class Work(Protocol):
    """Something to do once with one run; where it is done already, its result is in the run's folder."""

    @property
    def run(self) -> TrainingRun:
        """The run it is about."""

    def is_done(self, library: Library) -> bool:
        """Whether nothing is left to do."""

    def perform(self, library: Library, device: torch.device, command: str | None = None) -> None:
        """Do the work; its records name `command`, or else the work's own command."""

    def command(self, library: Library) -> str:
        """The same from a shell."""


@dataclass(frozen=True)
class TrainingWork:
    """Train `run` to its end."""

    run: TrainingRun
    num_threads: int = 0
    """Threads that decode frames; 0 means one per core."""

    def is_done(self, library: Library) -> bool:
        return library.is_trained(self.run)

    def perform(self, library: Library, device: torch.device, command: str | None = None) -> None:
        """Start or continue training; provenance.json names `command`, or else the work's own command."""
        train_run(
            self.run.config,
            library.data_paths(self.run),
            library.folder(self.run),
            device=device,
            preset=self.run.preset,
            num_threads=self.num_threads,
            command=command or self.command(library),
        )

    def command(self, library: Library) -> str:
        return library.command(self.run)


@dataclass(frozen=True)
class EvaluationWork:
    """Evaluate `run` on stored pairs."""

    run: TrainingRun
    settings: EvaluationSettings
    num_animations: int = 0
    """Episodes to film."""

    def folder(self, library: Library) -> Path:
        return results_folder(library.folder(self.run), self.settings, 0, is_finished=True)

    def result(self, library: Library) -> dict[str, Any] | None:
        """The content of its result.json; None before it has been done."""
        found = read_if_there(self.folder(library) / "result.json")
        asked = self.settings.at_frame_skip(self.run.config.frame_skip).identity()
        known = found.get("evaluated", {})
        return found if known and all(known.get(name) == value for name, value in asked.items()) else None

    def found(self, library: Library) -> dict[str, Any]:
        """What it found; an error before it has been done."""
        result = self.result(library)
        if result is None:
            settings = self.settings.name() or "default settings"
            raise NotThereYetError(f"{self.run.name} has not been evaluated with {settings}.")
        return result

    def is_done(self, library: Library) -> bool:
        return self.result(library) is not None

    def perform(self, library: Library, device: torch.device, command: str | None = None) -> None:
        """Evaluate; the results name `command`, or else the work's own command."""
        evaluate_run(
            library.folder(self.run),
            self.settings,
            data_path=library.data_path(self.settings.data_set or self.run.task),
            device=device,
            num_animations=self.num_animations,
            command=command or self.command(library),
        )

    def command(self, library: Library) -> str:
        usual, planning = EvaluationSettings(), self.settings.planning
        flags: dict[str, Any] = {
            "--task": (self.settings.data_set, usual.data_set),
            "--split": (self.settings.split, usual.split),
            "--pairs-per-episode": (self.settings.pairs_per_episode, usual.pairs_per_episode),
            "--episodes": (self.settings.num_episodes, usual.num_episodes),
            "--capacity": (planning.capacity, usual.planning.capacity),
            "--goal-cost": (planning.goal_cost, usual.planning.goal_cost),
            "--candidates": (planning.cem.num_candidates, usual.planning.cem.num_candidates),
            "--iterations": (planning.cem.num_iterations, usual.planning.cem.num_iterations),
            "--elites": (planning.cem.num_elites, usual.planning.cem.num_elites),
        }
        words = ["alewm", "evaluate", str(library.folder(self.run))]
        for flag, (value, default) in flags.items():
            words += [flag, str(value)] if value != default else []
        return shlex.join([*words, "--animations", str(self.num_animations)])


def over_seeds(
    runs: Sequence[TrainingRun], settings: EvaluationSettings, library: Library, name: str = "success_rate"
) -> Spread:
    """Mean and SEM over the runs of one number of their evaluations."""
    return Spread.of([float(EvaluationWork(run, settings).found(library)[name]) for run in runs])
