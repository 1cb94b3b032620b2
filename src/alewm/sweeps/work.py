"""Starting the processes that train one model together.

Units of work, each done once: training a run, evaluating it, measuring something on its model.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from alewm.evaluation.evaluate_run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings, results_folder
from alewm.evaluation.trained import read_measurement, write_measurement
from alewm.files import read_if_there
from alewm.follower import FOLLOWED
from alewm.sweeps.library import Library
from alewm.sweeps.run import Run
from alewm.training.train_run import train_run


def launch_ranks(num_ranks: int, words: Sequence[str]) -> None:
    """Runs `alewm WORDS` in `num_ranks` processes of this machine that share every batch, and waits for their end.

    They end with this process, however that ends. Each has its share of this process's threads.
    """
    follower = "alewm.follower"
    torchrun = [sys.executable, "-m", follower, "torch.distributed.run", "--standalone", "--nproc_per_node"]
    own = {FOLLOWED: str(os.getpid()), "OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // num_ranks))}
    done = subprocess.run(
        [*torchrun, str(num_ranks), "-m", follower, "alewm", *words], env={**os.environ, **own}, check=False
    )
    if done.returncode:
        raise RuntimeError(f"torchrun ended with status {done.returncode}; its log says why")


@dataclass(frozen=True)
class Training:
    """Train `run` to its end."""

    run: Run
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
class Evaluation:
    """Plan with `run` to stored pairs."""

    run: Run
    settings: EvaluationSettings
    num_animations: int = 0
    """Episodes to film."""

    def folder(self, library: Library) -> Path:
        """Where its results are."""
        return results_folder(library.folder(self.run), self.settings, 0, is_finished=True)

    def result(self, library: Library) -> dict[str, Any] | None:
        """What it found, or None before it has been done."""
        found = read_if_there(self.folder(library) / "result.json")
        asked = self.settings.identity()
        known = found.get("evaluated", {})
        return found if known and all(known.get(name) == value for name, value in asked.items()) else None

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


Measure = Callable[[Path, Path, torch.device, Mapping[str, Any]], dict[str, Any]]
"""From a run's folder, its data file, a device and options to plain JSON values."""


@dataclass(frozen=True)
class Measurement:
    """Something computed on a trained model, kept below RUN/measurements."""

    run: Run
    name: str
    """What it is called; its folder."""
    measure: Measure
    """A function at the top of a module, so that other processes find it."""
    options: tuple[tuple[str, Any], ...] = ()
    """What it depends on besides the run."""
    made_by: str = ""
    """The command of the experiment that makes it."""

    def result(self, library: Library) -> dict[str, Any] | None:
        """What it found with these options, or None before it has been done."""
        return read_measurement(library.folder(self.run), self.name, dict(self.options))

    def is_done(self, library: Library) -> bool:
        """Whether its result is there."""
        return self.result(library) is not None

    def perform(self, library: Library, device: torch.device, command: str | None = None) -> None:
        """Measures; the result names the experiment's command."""
        data = library.data_path(self.run.task)
        options = dict(self.options)
        measured = self.measure(library.folder(self.run), data, device, options)
        write_measurement(library.folder(self.run), self.name, options, measured, self.made_by or command)

    def command(self, library: Library) -> str:
        """The same from a shell: the experiment itself, which reuses everything else."""
        return f"{self.made_by}  # {self.name} of {library.folder(self.run)}"


Work = Training | Evaluation | Measurement
