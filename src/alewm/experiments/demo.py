"""The main job, small enough for a laptop: record, learn twice, plan to goals never seen, compare.

ALeWM and LeWM learn from the same episodes at the same budget, side by side in two processes, and are evaluated on the
same held-out pairs. Every stage leaves its result in the folder, so that repeating the command continues.
"""

import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, Literal

import torch

from alewm.config import to_dict
from alewm.errors import InputError
from alewm.evaluation.run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings
from alewm.experiments.collection import collect_task
from alewm.experiments.presets import preset
from alewm.planning.cem import CEMConfig
from alewm.planning.planner import PlanningConfig
from alewm.progress import Progress
from alewm.runs.folder import RunFolder
from alewm.training.config import RunConfig
from alewm.training.run import train_run
from alewm.workers import follow_parent, num_available_cores

PRESETS = {"alewm": "two-room-tiny", "lewm": "two-room-tiny-lewm"}
"""The runs by the name of their folder."""

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class DemoScale:
    """How much of everything."""

    num_episodes: int
    """Recorded episodes; a fifth of them is held out for test, a tenth for validation."""
    num_pairs: int
    """Held-out pairs planned to."""
    cem: CEMConfig
    """The search."""
    num_steps: int | None = None
    """Updates of each model; None for the preset's."""
    batch_size: int | None = None
    """Windows per update; None for the preset's."""


SCALES = {
    "full": DemoScale(num_episodes=1000, num_pairs=100, cem=CEMConfig()),
    "smoke": DemoScale(
        num_episodes=20,
        num_pairs=4,
        cem=CEMConfig(num_candidates=20, num_iterations=2, num_elites=4),
        num_steps=6,
        batch_size=16,
    ),
}
"""`full` is the demonstration; `smoke` is the same path in seconds, and its numbers mean nothing."""


@dataclass(frozen=True)
class Demo:
    """Where a demonstration ended."""

    results: dict[str, dict[str, Any]]
    """The evaluation of each run, by the name of its folder."""
    seconds: dict[str, float]
    """How long each stage took, this time."""


def run_demo(out: Path, *, scale: Literal["full", "smoke"], seed: int) -> Demo:
    """The results of both models; the run folders are `out/alewm` and `out/lewm`."""
    sizes = SCALES[scale]
    configs = {name: _configured(preset(preset_name), sizes, seed) for name, preset_name in PRESETS.items()}
    asked = {"scale": asdict(sizes), "seed": seed, "runs": {name: to_dict(config) for name, config in configs.items()}}
    folder = RunFolder(out).open(json.loads(json.dumps(asked)))
    data, clock = out / "two-room.h5", _Clock()
    size = configs["alewm"].model.encoder.image_size
    collect_task("two-room", data, num_episodes=sizes.num_episodes, seed=seed, image_size=size)
    clock.lap("collecting")
    unfinished = {name: config for name, config in configs.items() if not _is_evaluated(out / name)}
    if unfinished:
        _learn_and_plan(out, data, sizes, unfinished)
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


def _configured(config: RunConfig, sizes: DemoScale, seed: int) -> RunConfig:
    training = replace(config.training, seed=seed)
    if sizes.num_steps is not None:
        training = replace(training, num_steps=sizes.num_steps)
    if sizes.batch_size is not None:
        training = replace(training, batch_size=sizes.batch_size)
    return replace(config, training=training)


def _is_evaluated(run: Path) -> bool:
    return "evaluated" in (RunFolder(run).result() or {})


def _learn_and_plan(out: Path, data: Path, sizes: DemoScale, configs: dict[str, RunConfig]) -> None:
    """Train and evaluate all runs at once, one process each; whatever ends this function ends them too."""
    # Spawned, because forking a process that has threads (torch has) may deadlock.
    context = multiprocessing.get_context("spawn")
    problems = context.SimpleQueue()
    workers = [
        context.Process(target=_work, args=(config, data, out / name, sizes, len(configs), problems), daemon=True)
        for name, config in configs.items()
    ]
    for worker in workers:
        worker.start()
    try:
        total = sum(config.training.total_steps(1) for config in configs.values())
        logs = [out / name / "metrics.jsonl" for name in configs]
        with Progress(f"training {' and '.join(configs)}", total, "updates", done=_updates(logs)) as bar:
            _watch(workers, lambda: _updates(logs), bar)
        with Progress("planning to held-out goals", len(workers), "models") as bar:
            _watch(workers, lambda: sum(worker.exitcode == 0 for worker in workers), bar)
        if not problems.empty():
            raise InputError(problems.get())
        if any(worker.exitcode for worker in workers):
            raise RuntimeError("A worker of the demo failed; what it says is above.")
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _work(
    config: RunConfig, data: Path, run: Path, sizes: DemoScale, num_workers: int, problems: "SimpleQueue[str]"
) -> None:
    follow_parent()
    torch.set_num_threads(max(1, num_available_cores() // num_workers))
    cpu = torch.device("cpu")
    try:
        train_run(config, data, run, device=cpu, preset=PRESETS[run.name], num_threads=1, is_silent=True)
        settings = EvaluationSettings(num_episodes=sizes.num_pairs, planning=PlanningConfig(cem=sizes.cem))
        evaluate_run(run, settings, device=cpu, out=run, is_silent=True)
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
    return sum(max((json.loads(line)["step"] for line in _whole_lines(log)), default=0) for log in logs)


def _whole_lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.exists() else []
