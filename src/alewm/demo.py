"""The whole path in one command: record, train, plan to held-out goals, compare.

Runs learn from the same episodes at the same budget, each in a process of its own, and are evaluated on the same
held-out pairs. These processes start first: while episodes are recorded they import, find their device and compile.
Every stage leaves its result in the folder, so that repeating the command continues.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import torch

from alewm.config import overridden, to_dict
from alewm.devices import find_device
from alewm.envs.collect_task import collect_task
from alewm.errors import InputError
from alewm.evaluation.evaluate_run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings
from alewm.planning.planner import PlanningConfig
from alewm.planning.search import CEMConfig
from alewm.progress import Progress
from alewm.runs.folder import RunFolder, read_metrics
from alewm.training.acceleration import rehearse
from alewm.training.config import RunConfig
from alewm.training.presets import preset
from alewm.training.train_run import train_run
from alewm.workers import WorkerProcess, end_workers, num_available_cores

ScaleName = Literal["full", "smoke", "large"]

_TINY = {"alewm": "two-room-tiny", "lewm": "two-room-tiny-lewm"}


@dataclass(frozen=True)
class DemoScale:
    """Which models learn from how much, and how they are evaluated."""

    presets: Mapping[str, str]
    """The preset of each run, by the name of its folder."""
    num_episodes: int
    """Recorded episodes; a fifth of them is held out for test, a tenth for validation."""
    num_pairs: int
    """Held-out pairs planned to."""
    cem: CEMConfig = field(default_factory=CEMConfig)
    """The search."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the presets that are different here, by dotted path."""
    needs_gpu: bool = False
    """Whether a GPU computes; otherwise the CPU does, where the same command gives the same bytes."""

    def configs(self, seed: int) -> dict[str, RunConfig]:
        """What each run is trained with, by the name of its folder."""
        changes = {**self.changes, "training.seed": seed}
        return {name: overridden(preset(preset_name), changes) for name, preset_name in self.presets.items()}

    def settings(self) -> EvaluationSettings:
        """How each run is evaluated."""
        return EvaluationSettings(num_episodes=self.num_pairs, planning=PlanningConfig(cem=self.cem))

    def most_plans(self) -> int:
        """Plans of one run's evaluation, at most."""
        return self.num_pairs * self.settings().most_plans_per_episode()

    def device(self) -> torch.device:
        """Where models learn and plan; a missing GPU is refused."""
        found = find_device("auto" if self.needs_gpu else "cpu")
        if self.needs_gpu and found.type == "cpu":
            raise InputError("This scale trains a full-size model, which takes a GPU, and torch sees none here.")
        return found


_LARGE_STEPS = 2000

SCALES: dict[ScaleName, DemoScale] = {
    "full": DemoScale(_TINY, num_episodes=1000, num_pairs=100),
    "smoke": DemoScale(
        _TINY,
        num_episodes=20,
        num_pairs=4,
        cem=CEMConfig(num_candidates=20, num_iterations=2, num_elites=4),
        changes={"training.num_steps": 6, "training.batch_size": 16},
    ),
    "large": DemoScale(
        {"alewm": "two-room-192"},
        num_episodes=10_000,
        num_pairs=200,
        changes={
            "training.num_steps": _LARGE_STEPS,
            "training.optim.learning_rate": 2e-4,  # four times the paper's, for a schedule of a twenty-eighth
            "training.validate_every": _LARGE_STEPS,
            "training.checkpoint_every": _LARGE_STEPS,
        },
        needs_gpu=True,
    ),
}
"""`full` is the demonstration; `smoke` is the same path in seconds, and its numbers mean nothing; `large` is ALeWM as
the paper has it, on a short schedule."""


_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class DemoResult:
    """The results of a demonstration."""

    results: dict[str, dict[str, Any]]
    """The evaluation of each run, by the name of its folder."""
    seconds: dict[str, float]
    """How long each stage took, this time."""


def run_demo(out: Path, *, scale: ScaleName, seed: int) -> DemoResult:
    """The results of all models; their run folders are below `out`, named like their method."""
    sizes = SCALES[scale]
    configs, device = sizes.configs(seed), sizes.device()
    asked = {"scale": asdict(sizes), "seed": seed, "runs": {name: to_dict(config) for name, config in configs.items()}}
    folder = RunFolder(out).open(json.loads(json.dumps(asked)))
    data, began = out / "two-room.h5", time.perf_counter()
    unfinished = [name for name in configs if "evaluated" not in RunFolder(out / name).result()]
    num_threads = max(1, num_available_cores() // max(1, len(unfinished)))
    learners: list[_Learner] = []
    try:
        for name in unfinished:
            worker = WorkerProcess(_work, configs[name], data, out / name, sizes, device, num_threads)
            learners.append(_Learner(worker, out / name, configs[name], sizes.most_plans()))
        size = configs["alewm"].model.encoder.image_size
        collect_task("two-room", data, num_episodes=sizes.num_episodes, seed=seed, image_size=size)
        recorded = time.perf_counter()
        if learners:
            _finish(learners)
        seconds = {"collecting": recorded - began, "training and planning": time.perf_counter() - recorded}
    finally:
        end_workers([learner.worker for learner in learners])
    results = {name: RunFolder(out / name).result() for name in configs}
    folder.finish({"seconds": seconds, **results})
    return DemoResult(results, seconds)


@dataclass
class _Learner:
    """A process that waits for the data, then trains and evaluates one run."""

    worker: WorkerProcess
    run: Path
    config: RunConfig
    most_plans: int
    """Plans of its evaluation, at most: an episode that ends early needs fewer."""
    plans_told: int = 0
    """Plans made so far, as the process has said."""
    problem: str | None = None
    """Why it failed, as the process has said."""

    def num_updates(self) -> int:
        """Updates made so far, as the run's metrics say."""
        return max((entry["step"] for entry in read_metrics(self.run / "metrics.jsonl")), default=0)

    def num_plans(self) -> int:
        """Plans made so far; a run that has been evaluated needs no more."""
        return self.most_plans if self.worker.process.exitcode == 0 else min(self.plans_told, self.most_plans - 1)

    def listen(self) -> None:
        """Read what the process has said since."""
        with suppress(EOFError, OSError):
            while self.worker.pipe.poll():
                said = self.worker.pipe.recv()
                if isinstance(said, int):
                    self.plans_told += said
                else:
                    self.problem = said


def _finish(learners: Sequence[_Learner]) -> None:
    """Hand the data to the workers; wait until all are done or one has failed."""
    for learner in learners:
        with suppress(BrokenPipeError):  # it died, which `_watch` will find
            learner.worker.pipe.send("recorded")
    names = " and ".join(learner.run.name for learner in learners)
    num_updates = sum(learner.config.training.total_steps(1) for learner in learners)
    done = sum(map(_Learner.num_updates, learners))
    with Progress(f"training {names}", num_updates, "updates", done=done) as bar:
        _watch(learners, _Learner.num_updates, bar)
    num_plans = sum(learner.most_plans for learner in learners)
    with Progress(f"planning with {names}", num_plans, "plans") as bar:
        _watch(learners, _Learner.num_plans, bar)
    for learner in learners:
        if learner.worker.process.exitcode:
            if learner.problem is None:
                raise RuntimeError("A worker of the demo failed; what it says is above.")
            raise InputError(learner.problem)


def _watch(learners: Sequence[_Learner], count: Callable[[_Learner], int], bar: Progress) -> None:
    """Move `bar` as the sum of `count` grows, until it is full, no worker is left or one has failed."""
    while bar.done < bar.total and not any(learner.worker.process.exitcode for learner in learners):
        running = [each.worker.process.sentinel for each in learners if each.worker.process.is_alive()]
        if running:
            wait(running, timeout=_POLL_SECONDS)
        for learner in learners:
            learner.listen()
        planning = [learner.run.name for learner in learners if learner.plans_told]
        note = f"({', '.join(planning)} plans already)" if 0 < len(planning) < len(learners) else ""
        bar.advance(max(0, sum(map(count, learners)) - bar.done), note)
        if not running:
            return


def _work(
    pipe: Connection,
    config: RunConfig,
    data: Path,
    run: Path,
    sizes: DemoScale,
    device: torch.device,
    num_threads: int,
) -> None:
    torch.set_num_threads(num_threads)
    try:
        rehearse(config, device)
        pipe.recv()  # once the episodes are recorded
        # Where the processor computes, it has one thread for decoding; beside a GPU it has nothing else to do.
        num_decoders = 1 if device.type == "cpu" else num_threads
        preset = sizes.presets[run.name]
        train_run(config, data, run, device=device, preset=preset, num_threads=num_decoders, is_silent=True)
        evaluate_run(run, sizes.settings(), device=device, out=run, is_silent=True, on_search=pipe.send)
    except InputError as error:
        pipe.send(str(error))
        raise SystemExit(1) from error
