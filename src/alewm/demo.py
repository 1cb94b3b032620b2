"""The whole path in one command: record, train, plan to held-out goals, compare.

Runs learn from the same episodes at the same budget, each in a process of its own, and are evaluated on the same
held-out pairs. These processes start first: while episodes are recorded they import, find their device and compile.
Every stage leaves its result in the folder, so that repeating the command continues.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, NoReturn

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
    data, clock = out / "two-room.h5", _Clock()
    unfinished = {name: config for name, config in configs.items() if not _is_evaluated(out / name)}
    with _learners(out, data, sizes, unfinished, device) as learners:
        size = configs["alewm"].model.encoder.image_size
        collect_task("two-room", data, num_episodes=sizes.num_episodes, seed=seed, image_size=size)
        clock.lap("collecting")
        learners.finish()
        clock.lap("training and planning")
    results = {name: RunFolder(out / name).result() for name in configs}
    folder.finish({"seconds": clock.seconds, **results})
    return DemoResult(results, clock.seconds)


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage], self._began = now - self._began, now


def _is_evaluated(run: Path) -> bool:
    return "evaluated" in RunFolder(run).result()


@contextmanager
def _learners(
    out: Path, data: Path, sizes: DemoScale, configs: Mapping[str, RunConfig], device: torch.device
) -> Iterator["_Learners"]:
    """A process for each run, which waits for the data; all end with the block."""
    num_threads = max(1, num_available_cores() // max(1, len(configs)))
    workers: list[WorkerProcess] = []
    try:
        for name, config in configs.items():
            workers.append(WorkerProcess(_work, config, data, out / name, sizes, device, num_threads))
        yield _Learners(workers, {out / name: config for name, config in configs.items()})
    finally:
        end_workers(workers)


@dataclass(frozen=True)
class _Learners:
    """The processes that train and evaluate."""

    workers: Sequence[WorkerProcess]
    configs: Mapping[Path, RunConfig]

    def finish(self) -> None:
        """Hand the data to the workers; wait until all are done or one has failed."""
        if not self.workers:
            return
        for worker in self.workers:
            with suppress(BrokenPipeError):  # it died, which `_watch` will find
                worker.pipe.send("recorded")
        total = sum(config.training.total_steps(1) for config in self.configs.values())
        logs, names = [run / "metrics.jsonl" for run in self.configs], [run.name for run in self.configs]
        with Progress(f"training {' and '.join(names)}", total, "updates", done=_updates(logs)) as bar:
            _watch(self.workers, lambda: _updates(logs), bar)
        with Progress("planning to held-out goals", len(self.workers), "models") as bar:
            _watch(self.workers, lambda: sum(worker.process.exitcode == 0 for worker in self.workers), bar)
        for worker in self.workers:
            if worker.process.exitcode:
                _raise_failure(worker)


def _raise_failure(worker: WorkerProcess) -> NoReturn:
    """Raise what a worker that failed has sent."""
    try:
        problem = worker.pipe.recv()
    except (EOFError, OSError):
        raise RuntimeError("A worker of the demo failed; what it says is above.") from None
    raise InputError(problem)


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
        planning = PlanningConfig(cem=sizes.cem)
        rehearse(config, device)
        pipe.recv()  # once the episodes are recorded
        # Where the processor computes, it has one thread for decoding; beside a GPU it has nothing else to do.
        num_decoders = 1 if device.type == "cpu" else num_threads
        preset = sizes.presets[run.name]
        train_run(config, data, run, device=device, preset=preset, num_threads=num_decoders, is_silent=True)
        settings = EvaluationSettings(num_episodes=sizes.num_pairs, planning=planning)
        evaluate_run(run, settings, device=device, out=run, is_silent=True)
    except InputError as error:
        pipe.send(str(error))
        raise SystemExit(1) from error


def _watch(workers: Sequence[WorkerProcess], count: Callable[[], int], bar: Progress) -> None:
    """Move `bar` as `count` grows, until it is full, no worker is left or one has failed."""
    while bar.done < bar.total and not any(worker.process.exitcode for worker in workers):
        running = [worker.process.sentinel for worker in workers if worker.process.is_alive()]
        if running:
            wait(running, timeout=_POLL_SECONDS)
        bar.advance(max(0, count() - bar.done))
        if not running:
            return


def _updates(logs: list[Path]) -> int:
    """Updates made so far, as the metrics of all runs say."""
    return sum(max((entry["step"] for entry in read_metrics(log)), default=0) for log in logs)
