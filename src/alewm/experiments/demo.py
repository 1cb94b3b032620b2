"""The main job in one command: record, learn, plan to goals never seen, compare.

Runs learn from the same episodes at the same budget, each in a process of its own, and are evaluated on the same
held-out pairs. These processes start first: while episodes are recorded they import, find their device and compile.
Every stage leaves its result in the folder, so that repeating the command continues.
"""

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import torch

from alewm.config import to_dict
from alewm.errors import InputError
from alewm.evaluation.rehearsal import rehearse_search
from alewm.evaluation.run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings
from alewm.experiments.collection import collect_task
from alewm.experiments.demo_scale import SCALES, DemoScale, ScaleName
from alewm.planning.planner import PlanningConfig
from alewm.progress import Progress
from alewm.runs.folder import RunFolder
from alewm.runs.metrics import read_metrics
from alewm.training.config import RunConfig
from alewm.training.rehearsal import rehearse
from alewm.training.run import train_run
from alewm.workers import follow_parent, num_available_cores, starting_workers

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Demo:
    """Where a demonstration ended."""

    results: dict[str, dict[str, Any]]
    """The evaluation of each run, by the name of its folder."""
    seconds: dict[str, float]
    """How long each stage took, this time."""


def run_demo(out: Path, *, scale: ScaleName, seed: int) -> Demo:
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
    return Demo(results, clock.seconds)


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
    """A process for each run, which waits for the data; whatever ends the block ends them too."""
    # Spawned, because forking a process that has threads (torch has) may deadlock.
    context = multiprocessing.get_context("spawn")
    is_recorded, problems = context.Event(), context.SimpleQueue()
    share = max(1, num_available_cores() // max(1, len(configs)))
    workers = [
        context.Process(
            target=_work, args=(config, data, out / name, sizes, device, share, is_recorded, problems), daemon=True
        )
        for name, config in configs.items()
    ]
    with starting_workers():
        for worker in workers:
            worker.start()
    try:
        yield _Learners(workers, {out / name: config for name, config in configs.items()}, is_recorded, problems)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


@dataclass(frozen=True)
class _Learners:
    """The processes that train and evaluate."""

    workers: Sequence[BaseProcess]
    configs: Mapping[Path, RunConfig]
    is_recorded: Event
    problems: "SimpleQueue[str]"

    def finish(self) -> None:
        """Let them have the data, and wait until all are done or one has failed."""
        if not self.workers:
            return
        self.is_recorded.set()
        total = sum(config.training.total_steps(1) for config in self.configs.values())
        logs, names = [run / "metrics.jsonl" for run in self.configs], [run.name for run in self.configs]
        with Progress(f"training {' and '.join(names)}", total, "updates", done=_updates(logs)) as bar:
            _watch(self.workers, lambda: _updates(logs), bar)
        with Progress("planning to held-out goals", len(self.workers), "models") as bar:
            _watch(self.workers, lambda: sum(worker.exitcode == 0 for worker in self.workers), bar)
        if not self.problems.empty():
            raise InputError(self.problems.get())
        if any(worker.exitcode for worker in self.workers):
            raise RuntimeError("A worker of the demo failed; what it says is above.")


def _work(
    config: RunConfig,
    data: Path,
    run: Path,
    sizes: DemoScale,
    device: torch.device,
    num_threads: int,
    is_recorded: Event,
    problems: "SimpleQueue[str]",
) -> None:
    follow_parent()
    torch.set_num_threads(num_threads)
    try:
        planning = PlanningConfig(cem=sizes.cem)
        rehearse(config, device)
        rehearse_search(config.model, planning, device)
        is_recorded.wait()
        # Where the processor computes, it has one thread for decoding; beside a GPU it has nothing else to do.
        num_decoders = 1 if device.type == "cpu" else num_threads
        preset = sizes.presets[run.name]
        train_run(config, data, run, device=device, preset=preset, num_threads=num_decoders, is_silent=True)
        settings = EvaluationSettings(num_episodes=sizes.num_pairs, planning=planning)
        evaluate_run(run, settings, device=device, out=run, is_silent=True)
    except InputError as error:
        problems.put(str(error))
        raise SystemExit(1) from error


def _watch(workers: Sequence[BaseProcess], count: Callable[[], int], bar: Progress) -> None:
    """Move `bar` as `count` grows, until it is full, no worker is left or one has failed."""
    while bar.done < bar.total and not any(worker.exitcode for worker in workers):
        running = [worker.sentinel for worker in workers if worker.is_alive()]
        if running:
            wait(running, timeout=_POLL_SECONDS)
        bar.advance(max(0, count() - bar.done))
        if not running:
            return


def _updates(logs: list[Path]) -> int:
    """Updates made so far, as the metrics of all runs say."""
    return sum(max((entry["step"] for entry in read_metrics(log)), default=0) for log in logs)
