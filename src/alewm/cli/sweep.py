"""`alewm sweep`: a grid of training runs, selected on validation pairs, on Ray or in local processes."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from alewm.cli.flags import Flag, Maybe, Several, assigned_values
from alewm.config import check_seeds
from alewm.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alewm.evaluation.settings import EvaluationSettings
    from alewm.sweeps.grid import Grid
    from alewm.sweeps.jobs import Executor, JobResources
    from alewm.sweeps.library import Library


@dataclass(frozen=True)
class Sweep:
    """Train a grid of configurations and select one on validation pairs; test pairs are never looked at.

    Without a preset the grids are the paper's, for every task and width. Trials run on Ray, one per GPU (or per core
    where there is none); --jobs N runs them in N processes of this machine instead. Every trial is a run folder as
    `alewm train` makes it: finished ones below --runs are reused, and repeating the command continues the others.
    """

    presets: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(help_behavior_hint="", metavar="[PRESET ...]")
    ] = ()
    """Configurations to search around, for example two-room-192; `alewm train --list` explains the names."""
    set: Several[str] = ()
    """Values of a field, by the path config.json shows, for example --set objective.regularizer_weight=0.15,0.3. Fields
    with several values make the grid, in place of the paper's; with one, it is the same for all trials."""
    seeds: Several[int] = ()
    """Model seeds; if not given, the paper's 3072, 3073 and 3074."""
    only: Several[str] = ()
    """Of the paper's grids only these tasks, widths and methods, for example --only two-room 192 alewm."""
    data: Path = Path("data")
    """Folder with one file of episodes per task (two-room.h5, push-t.h5, reacher.h5, cube.h5), or a task's file."""
    runs: Path = Path("runs")
    """Folder of all runs."""
    out: Maybe[Path] = None
    """Folder of the sweep's tables and logs; if not given, a folder in RUNS/sweeps named after the grid."""
    evaluate: Flag = True
    """Only train: without planning to validation pairs nothing is selected."""
    episodes: Maybe[int] = None
    """Validation pairs to plan to, the first ones; if not given, all that are stored (100)."""
    candidates: int = 300
    """CEM: action sequences scored per iteration."""
    iterations: int = 30
    """CEM: times the distribution is refined."""
    jobs: Maybe[int] = None
    """Run in so many processes of this machine, without Ray; 0 means as many as its GPUs, or else cores, have room
    for."""
    address: Maybe[str] = None
    """A running Ray cluster, as HOST:PORT or auto. Its machines need this package, and the working folder, runs and
    data on storage they share. If not given (nor RAY_ADDRESS set), Ray is started on this machine and ended again."""
    gpus_per_trial: Maybe[float] = None
    """GPUs of a trial, or a fraction: 0.5 puts two on one. If not given, one where there are GPUs."""
    cpus_per_trial: Maybe[int] = None
    """Cores of a trial, for arithmetic and decoding; if not given, an even share where there are GPUs, else one (with
    --jobs, an even share)."""
    retries: int = 2
    """How often a trial that failed is tried again, from its last checkpoint."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or mps."""
    dry_run: Flag = False
    """Print every command and the number of trials, and stop."""

    WHEN_INTERRUPTED: ClassVar[str] = "Finished trials and saved checkpoints are kept; repeat the command to continue."

    def run(self) -> None:
        """Runs what is missing, writes the tables and prints them; trials that failed make it end with status 1."""
        from alewm.sweeps.library import Library
        from alewm.sweeps.sweep import folder_name, run_sweep

        resources, settings, sweep = self._resources(), self._settings(), self._sweep()
        library = Library(self.runs, self.data)
        if self.dry_run:
            for line in self._planned(sweep, library, settings):
                print(line)
            return
        out = self.out or self.runs / "sweeps" / folder_name(sweep)
        outcome = run_sweep(sweep, library, lambda: self._executor(resources), settings, out, retries=self.retries)
        path = outcome.write(out, sweep, library)
        print(outcome.configurations.markdown())
        for finding in outcome.findings:
            print(finding)
        print(path)
        if outcome.failures:
            lines = "\n".join(f"  {name}: {reason}" for name, reason in outcome.failures.items())
            print(
                f"alewm: {len(outcome.failures)} of {len(sweep.runs)} trials failed; {out / 'logs'} has what they "
                f"printed. Repeat the command to try them again.\n{lines}",
                file=sys.stderr,
            )
            sys.exit(1)

    def _sweep(self) -> "Grid":
        from alewm.sweeps.grid import SEED, paper_sweep, preset_sweep
        from alewm.training.presets import SEEDS

        seeds = self.seeds or SEEDS
        check_seeds(seeds)
        if self.only and self.presets:
            raise InputError("--only chooses among the paper's grids; with presets, name those you want instead.")
        values = assigned_values(self.set)
        if SEED in values:
            raise InputError(f"--set {SEED} is what --seeds is for: --seeds 3072 3073.")
        return preset_sweep(self.presets, seeds, values) if self.presets else paper_sweep(seeds, self.only, values)

    def _settings(self) -> "EvaluationSettings | None":
        from alewm.evaluation.settings import EvaluationSettings
        from alewm.planning.planner import PlanningConfig
        from alewm.planning.search import CEMConfig

        if not self.evaluate:
            return None
        cem = CEMConfig.with_a_tenth_elite(self.candidates, self.iterations)
        return EvaluationSettings("validation", self.episodes, planning=PlanningConfig(cem=cem))

    def _resources(self) -> "JobResources":
        from alewm.sweeps.jobs import JobResources

        if self.retries < 0:
            raise InputError(f"--retries is a number of 0 or more, got {self.retries}.")
        if self.jobs is not None and self.jobs < 0:
            raise InputError(f"--jobs is a number of processes, or 0 for as many as have room; got {self.jobs}.")
        if self.jobs is not None and self.address is not None:
            raise InputError("--jobs runs processes of this machine and --address a Ray cluster; give one of the two.")
        return JobResources(self.cpus_per_trial, self.gpus_per_trial)

    def _planned(self, sweep: "Grid", library: "Library", settings: "EvaluationSettings | None") -> "Iterator[str]":
        from alewm.sweeps.jobs import planned_work
        from alewm.sweeps.library import EvaluationWork, TrainingWork

        trainings = [TrainingWork(run) for run in sweep.runs]
        evaluations = [EvaluationWork(run, settings) for run in sweep.runs] if settings is not None else []
        return planned_work(trainings, evaluations, library)

    def _executor(self, resources: "JobResources") -> "Executor":
        if self.jobs is not None:
            from alewm.devices import find_device
            from alewm.sweeps.executors import LocalProcesses

            return LocalProcesses.sharing(self.jobs, find_device(resources.device(self.device)), resources)
        from alewm.sweeps.executors import RayCluster

        return RayCluster(self.address, self.device, resources)
