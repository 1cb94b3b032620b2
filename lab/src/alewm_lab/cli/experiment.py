"""What `alewm-lab` runs: `experiment` (a table or figure of the paper), `oscillator` (its toy study), and `cell`.

A cell is one model of the main table, and everything about it.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from alewm.cli.flags import Flag, Maybe, Several
from alewm.cli.train import Train
from alewm.config import check_seeds
from alewm.errors import InputError
from alewm.workers import num_processes
from alewm_lab.oscillator import NAME as OSCILLATOR

if TYPE_CHECKING:
    from alewm.sweeps.jobs import Executor
    from alewm.sweeps.library import Library
    from alewm_lab.experiments.experiment import Recipe
    from alewm_lab.experiments.request import Request


@dataclass(frozen=True)
class ExperimentCommand:
    """Train, select on validation pairs, plan to test pairs, and write the tables and figures of an experiment.

    Finished runs below --runs are reused, whoever trained them; repeating the command after an interruption continues.
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(help_behavior_hint="", metavar="NAME")] = None
    """The experiment, for example prefix-sweep; --list shows all."""
    scale: Literal["smoke", "tiny", "short", "long", "paper"] = "paper"
    """`paper` is the paper's budget; `short` and `long` have fewer updates, the same data and evaluation, and say so in
    every caption (`long` has 12,000); `tiny` is Two-Room with models that learn to plan in minutes on a CPU; `smoke` is
    the same path in seconds, and its numbers mean nothing."""
    short_steps: Maybe[int] = None
    """Updates per model at the scale `short`; if not given, 10,000."""
    short_rate: Maybe[float] = None
    """Peak learning rate at the scales `short` and `long`, where few updates can bear a larger one; if not given, the
    paper's."""
    only: Several[str] = ()
    """Only these tasks and widths, for example --only two-room 192; everything if not given."""
    seeds: Several[int] = ()
    """Model seeds; if not given, the paper's 3072, 3073 and 3074 (two of them at the scale `smoke`)."""
    search: Flag = False
    """Search the paper's grids of λ, s_q and α on validation pairs instead of taking the rows the paper selected; for
    experiments that compare selected configurations."""
    lewm_widths: Several[int] = ()
    """Widths among which LeWM's best is chosen, besides the full one, where an experiment chooses: --lewm-widths 192
    trains it at d = 192 alone in that block. If not given, all of the paper's grid."""
    data: Path = Path("data")
    """Folder with one file of episodes per task: two-room.h5, push-t.h5, reacher.h5, cube.h5. The scales
    `tiny` and `smoke` record their own."""
    runs: Path = Path("runs")
    """Folder of all runs; results go to experiments/NAME-SCALE below it, with the tasks and widths of --only added."""
    jobs: int = 1
    """Processes that train and evaluate side by side; 0 means one per core."""
    ray: Flag = False
    """Train and evaluate on Ray instead, one model per GPU (or per core where there is none)."""
    address: Maybe[str] = None
    """With --ray: a running cluster, as HOST:PORT or auto, as for `alewm sweep`; if not given, Ray on this machine."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""
    dry_run: Flag = False
    """Print every command, the number of runs and an estimate of hours, and stop."""
    updates_per_second: Maybe[float] = None
    """For the estimate of a dry run, where no finished run tells: as `alewm-lab bench train-step` measures it, and
    for the scale `tiny` updates of `two-room-tiny`. If not given, what was measured on an NVIDIA H200, or an AMD EPYC
    core."""
    list: Flag = False
    """List the experiments and stop."""

    def run(self) -> None:
        """Does what is missing, writes the outcome and prints its tables."""
        from alewm_lab.experiments.framework import RECIPES, recipe

        if self.list:
            lines = {name: each.summary for name, each in RECIPES.items()}
            lines[OSCILLATOR] = "the toy study on a CPU: four known factors in the first four coordinates"
            print("\n".join(f"{name:<{max(map(len, lines))}}  {summary}" for name, summary in lines.items()))
            return
        if self.name is None:
            raise InputError("Name an experiment: alewm-lab experiment NAME. `alewm-lab experiment --list` shows all.")
        self._check_flags()
        if self.name == OSCILLATOR:
            self._run_oscillator()
            return

        from alewm.devices import find_device
        from alewm.runs.folder import provenance
        from alewm_lab.experiments.framework import execute, planned, record_own_data
        from alewm_lab.publishing.experiment_page import write_experiments_report, write_outcome

        asked = recipe(self.name)
        request = self._request(asked)
        library = self._library(request)
        experiment = asked.build(request)
        if self.dry_run:
            for line in planned(experiment, library, self.updates_per_second):
                print(line)
            return
        device, jobs = find_device(self.device), num_processes(self.jobs)
        if request.scale.own_data is not None:
            record_own_data(library, request.scale.own_data, experiment.data_sets)
        executor = self._cluster() if self.ray else None
        outcome = execute(experiment, library, jobs=jobs, device=device, executor=executor)
        out = self.runs / "experiments" / f"{experiment.name}-{request.folder}"
        write_outcome(experiment, outcome, asked.summary, provenance()["command"], out)
        for table in outcome.tables:
            print(table.markdown())
        for finding in outcome.findings:
            print(finding)
        print(write_experiments_report([out], out))

    def _check_flags(self) -> None:
        """Refuses numbers that make no sense, and flags that do not go together."""
        if self.short_steps is not None and (self.scale != "short" or self.short_steps < 1):
            raise InputError(f"--short-steps {self.short_steps} is a number of updates for --scale short.")
        if self.short_rate is not None and (self.scale not in ("short", "long") or not 0 < self.short_rate < math.inf):
            raise InputError(f"--short-rate {self.short_rate:g} is a positive learning rate for --scale short or long.")
        if (self.address is not None and not self.ray) or (self.ray and self.jobs != 1):
            raise InputError(
                "--address goes with --ray, and --jobs with neither: Ray decides how many run side by side."
            )
        if self.updates_per_second is not None and self.updates_per_second <= 0:
            raise InputError(f"--updates-per-second must be positive, got {self.updates_per_second}.")

    def _cluster(self) -> "Executor":
        from alewm.sweeps.executors import RayCluster
        from alewm.sweeps.jobs import JobResources

        return RayCluster(self.address, self.device, JobResources())

    def _run_oscillator(self) -> None:
        """The toy study has runs, scales and seeds of its own."""
        if self.scale in ("tiny", "short", "long") or self.only or self.search:
            raise InputError(
                "The oscillator has the scales paper and smoke and no --only; its search is `alewm-lab oscillator`."
            )
        # Not among the experiments: what it writes is a study of its own, which `alewm report` has no page for.
        out = self.runs / OSCILLATOR / self.scale
        seeds, epochs = (self.seeds or (0, 1, 2), None) if self.scale == "paper" else (self.seeds or (0,), 1)
        if self.dry_run:
            print(
                f"alewm-lab oscillator --out {out} --seeds {' '.join(map(str, seeds))}"
                + (f" --epochs {epochs}" if epochs else "")
            )
            return
        Oscillator(out=out, seeds=seeds, epochs=epochs, jobs=self.jobs).run()

    def _request(self, asked: "Recipe") -> "Request":
        from alewm_lab.experiments.request import Request, make_scale

        scale = make_scale(self.scale, self.short_steps, self.short_rate)
        if scale.is_for_cpu and self.only:
            raise InputError(f"The scale {scale.name} has one task and one width; --only has nothing to choose from.")
        if self.search and not asked.compares_configurations:
            raise InputError(f"{asked.name} compares no configurations, so that --search has nothing to search.")
        if self.lewm_widths and not asked.chooses_lewm_width:
            raise InputError(f"{asked.name} does not choose LeWM's width, so that --lewm-widths has nothing to limit.")
        seeds = self.seeds or asked.seeds or scale.seeds
        check_seeds(seeds)
        return Request(scale, seeds, self.only, self.search, self.lewm_widths)

    def _library(self, request: "Request") -> "Library":
        from alewm.sweeps.library import Library

        if request.scale.is_for_cpu:
            return Library(self.runs / self.scale, self.runs / self.scale / "data")
        return Library(self.runs, self.data)


if TYPE_CHECKING:
    import torch

    from alewm.capacity.support import CapacitySupport
    from alewm.evaluation.settings import EvaluationSettings
    from alewm.evaluation.success import Floors


@dataclass(frozen=True)
class CellJob(Train):
    """Train one model of the main table and do everything about it at once.

    After training come the 200 and the 1,000 test pairs, 100 and 500 validation pairs, every imposed capacity and the
    full goal cost where there are prefixes, probes, distilled dynamics with their success, shared weights, and last a
    decoder with its picture; each is on disk before the next begins. `alewm-lab publish RUN --out results/NAME` then
    writes all numbers to one file. Takes the options of `alewm train`. Repeating the command continues; what is there
    is not made again.
    """

    share: Maybe[Path] = None
    """Also write the weights in bfloat16 to this new folder (`alewm share`), for one seed per cell."""
    candidates: int = 300
    """CEM: action sequences scored per iteration."""
    iterations: int = 30
    """CEM: times the distribution is refined."""
    fit_frames: int = 20_000
    """Frames of training episodes that probes and the decoder are fitted to, at most."""
    fit_updates: int = 3_000
    """Updates of each probe."""
    distill_updates: int = 3_000
    """Updates of each distilled network; as `alewm distill`."""
    distill_frames: int = 200_000
    """Frames that dynamics are distilled from: of as many training episodes as hold so many on average, spread evenly
    over the file. More cost GPU time and gain little: with 175 of 700 Two-Room episodes, 16,000 frames, success stayed
    within a point (docs/distillation.md)."""
    decoder_updates: int = 1_000
    """Updates of the decoder, which draws pictures and decides no number."""

    WHEN_INTERRUPTED: ClassVar[str] = "What is finished is kept; repeat the command to continue."

    def run(self) -> None:
        """Makes what is missing, and prints the folder of the run."""
        from alewm.devices import find_device
        from alewm.evaluation.decoder import DecodeConfig, decode
        from alewm.evaluation.distill_run import distill
        from alewm.evaluation.probes import probe_run
        from alewm.interop.pretrained import share_run
        from alewm.training.checkpoint import latest_checkpoint, read_description
        from alewm.training.distill import DistillConfig

        run, device = self.trained(), find_device(self.device)
        support = read_description(latest_checkpoint(run)).config.model.support
        usual, *others = self._evaluations(support)
        floors: Floors = {}  # played once for fifteen evaluations: simulating them takes longer than planning
        _evaluate(run, usual, device, floors, num_animations=4)
        for settings in others:
            _evaluate(run, settings, device, floors)
        if not (run / "measurements" / "probes.json").is_file():
            amounts = {"num_train": self.fit_frames, "num_test": 5_000, "num_steps": self.fit_updates}
            probe_run(run, (), amounts, data_path=None, device=device)
        num_episodes = _episodes_holding(run, self.distill_frames)
        distill(run, config=DistillConfig(num_updates=self.distill_updates, num_episodes=num_episodes), device=device)
        for settings in (usual, replace(usual, pairs_per_episode=5)):
            _evaluate(run, replace(settings, dynamics="distilled"), device, floors)
        if self.share is not None:
            share_run(run, self.share, weights="bfloat16", device=device)
        decode(run, DecodeConfig(num_updates=self.decoder_updates, num_frames=self.fit_frames), device=device)
        if self.share is not None:  # again, which adds the decoder
            print(share_run(run, self.share, weights="bfloat16", device=device))
        print(run)

    def _evaluations(self, support: "CapacitySupport") -> "Iterator[EvaluationSettings]":
        """The usual settings first, then the others."""
        from alewm.evaluation.settings import EvaluationSettings
        from alewm.planning.planner import PlanningConfig
        from alewm.planning.search import CEMConfig

        planning = PlanningConfig(cem=CEMConfig.with_a_tenth_elite(self.candidates, self.iterations))
        usual = EvaluationSettings(planning=planning)
        yield usual
        yield replace(usual, pairs_per_episode=5)
        yield replace(usual, split="validation")
        yield replace(usual, split="validation", pairs_per_episode=5)  # which choose between configurations
        if len(support) > 1:
            for k in support.capacities:
                yield replace(usual, planning=replace(planning, capacity=str(k)))
            yield replace(usual, planning=replace(planning, goal_cost="full"))


def _episodes_holding(run: Path, num_frames: int) -> int:
    """As many training episodes as `num_frames` frames hold on average, but at least one; 0 stands for all."""
    import numpy as np

    from alewm.devices import find_device
    from alewm.evaluation.held_out import Trained

    with Trained.open(run, None, find_device("cpu")) as trained:
        store, train = trained.store, np.array(trained.splits.train)
        total = int((-(-store.lengths[train] // store.draw_every)).sum())
    return 0 if total <= num_frames else max(1, num_frames * len(train) // total)


def _evaluate(
    run: Path, settings: "EvaluationSettings", device: "torch.device", floors: "Floors", num_animations: int = 0
) -> None:
    """Evaluate unless the result is there."""
    from alewm.evaluation.evaluate_run import evaluate_run, percent
    from alewm.evaluation.settings import results_folder
    from alewm.files import read_if_there

    path = results_folder(run, settings, 0, is_finished=True) / "result.json"
    found = read_if_there(path)
    if "evaluated" not in found:
        found = evaluate_run(run, settings, device=device, num_animations=num_animations, floors=floors).result
    name = settings.name() or "200 test pairs"
    print(f"{name}: {percent(found['success_rate'])} of {found['episodes']} pairs", file=sys.stderr)


# Spelled out, not imported: importing the study would load torch for `--help`. A test compares the two.
_Variant = Literal[
    "lewm", "alewm", "alewm-paper", "remedies", "prior-frozen", "marginal", "alewm-sigreg", "nested-dropout"
]


@dataclass(frozen=True)
class Oscillator:
    """The toy study: does ALeWM gather four known factors in its first four coordinates?

    Trains LeWM and ALeWM on two controlled damped oscillators seen through a nonlinear ten-dimensional observation, and
    writes result.json, table.md, figure.png and figure.svg. Repeating the command continues where it stopped.
    """

    out: Path = Path("runs/oscillator")
    """Folder of the study; made if it does not exist."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One model per seed and setting; a seed fixes trajectories, initialisation, batches and noise."""
    epochs: Maybe[int] = None
    """Passes over the 5,000 training trajectories, for every model; if not given, the paper's 200, and 400 for our
    setting of ALeWM."""
    methods: tuple[_Variant, ...] = ("lewm", "alewm", "alewm-paper")
    """What to train: `lewm` (widths 4, 6 and 8), `alewm` (our recommended setting), `alewm-paper` (the paper's),
    `remedies` (the paper's with one thing changed about the selector: never updated, exact expectation, slower, delayed
    by 1/8 and 1/2, KL of 0.01 and 0.1), and controls of our setting: `prior-frozen` (selector never updated),
    `marginal` (exact expectation over capacities instead of a sample), `alewm-sigreg` (SIGReg on the masked latent) and
    `nested-dropout`."""
    jobs: int = 0
    """Processes to use; 0 means one per core."""
    sweep: Flag = False
    """Run the paper's search grids instead (12 weights x 7 LeWM widths, 12 weights x 7 prior degrees of ALeWM), select
    on validation data and report the selected settings on test data."""

    def run(self) -> None:
        """Trains what is missing and writes the results."""
        from alewm_lab.oscillator.run import run_study
        from alewm_lab.oscillator.study import default_study, sweep_study

        if self.sweep:
            study = sweep_study(self.seeds, self.epochs)
        else:
            study = default_study(self.seeds, self.epochs, self.methods)
        run_study(study, self.out, jobs=num_processes(self.jobs), is_sweep=self.sweep)
        print(self.out / "result.json")
