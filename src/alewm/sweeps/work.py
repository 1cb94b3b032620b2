"""Units of work, each done once: training a run, and evaluating it on stored pairs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from alewm.evaluation.evaluate_run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings, results_folder
from alewm.evaluation.statistics import Spread
from alewm.files import read_if_there
from alewm.sweeps.library import Library, TrainingRun
from alewm.training.train_run import train_run
from alewm.workers import launch_ranks


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
        """Do it; what is written names `command`, or else the work's own command."""

    def command(self, library: Library) -> str:
        """The same from a shell."""


@dataclass(frozen=True)
class TrainingWork:
    """Train `run` to its end."""

    run: TrainingRun
    num_ranks: int = 1
    """Processes that share every batch."""
    num_threads: int = 0
    """Threads that decode frames in each of them; 0 means one per core."""

    def is_done(self, library: Library) -> bool:
        """Whether nothing is left to do."""
        return library.is_trained(self.run)

    def perform(self, library: Library, device: torch.device, command: str | None = None) -> None:
        """Begins or continues; the run names `command`, or else its own."""
        if self.num_ranks > 1:
            words = shlex.split(library.command(self.run))[1:]
            launch_ranks(self.num_ranks, [*words, "--device", str(device), "--threads", str(self.num_threads)])
            return
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
        """The same from a shell."""
        command = library.command(self.run)
        if self.num_ranks == 1:
            return command
        return f"torchrun --standalone --nproc_per_node {self.num_ranks} -m {command}"


@dataclass(frozen=True)
class EvaluationWork:
    """Evaluate `run` on stored pairs."""

    run: TrainingRun
    settings: EvaluationSettings
    num_animations: int = 0
    """Episodes to film."""

    def folder(self, library: Library) -> Path:
        """Where its results are."""
        return results_folder(library.folder(self.run), self.settings, 0, is_finished=True)

    def result(self, library: Library) -> dict[str, Any] | None:
        """The content of its result.json; None before it has been done."""
        found = read_if_there(self.folder(library) / "result.json")
        asked = self.settings.identity()
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
        """Whether its result is there."""
        return self.result(library) is not None

    def perform(self, library: Library, device: torch.device, command: str | None = None) -> None:
        """Evaluates; the results name `command`, or else their own."""
        evaluate_run(
            library.folder(self.run),
            self.settings,
            data_path=library.data_path(self.settings.data_set or self.run.task),
            device=device,
            num_animations=self.num_animations,
            command=command or self.command(library),
        )

    def command(self, library: Library) -> str:
        """The same from a shell."""
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
