"""Whole commands: a Two-Room evaluation, and `alewm demo` from an empty folder."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import torch

from alewm.config import check_seeds
from alewm.data.splits import GOAL_OFFSET
from alewm.devices import find_device, simulation_device
from alewm.envs.registry import get_task
from alewm.envs.two_room_behaviour import simulate_episodes
from alewm.errors import InputError
from alewm.evaluation.closed_loop import GoalPairs
from alewm.evaluation.evaluate_run import EPISODES_PER_BATCH
from alewm.evaluation.success import evaluate_planner
from alewm.planning.planner import Planner, PlanningConfig, choose_search
from alewm.planning.search import CEMConfig
from alewm.training.presets import preset
from alewm_lab.benchmarks.plan_speed import untrained_model
from alewm_lab.benchmarks.timing import peak_mebibytes, print_line


def bench_evaluate(*, preset_name: str, episodes: int, candidates: int, iterations: int, device: str) -> None:
    """Prints the seconds of an evaluation of `episodes` pairs; an untrained model finishes few early, so it is long.

    Cold is the first of two in this process, in which kernels are compiled.
    """
    where, config = find_device(device), preset(preset_name)
    if config.task != "two-room" or episodes < 1:
        raise InputError(f"Expected a preset of two-room and 1 episode or more, got {preset_name} and {episodes}.")
    model = untrained_model(config.model, where)
    task = get_task(config.task)
    cem = CEMConfig.with_a_tenth_elite(candidates, iterations)
    planning = PlanningConfig(cem=cem, episodes_per_batch=EPISODES_PER_BATCH[where.type])
    search = choose_search(model, where)
    planner = Planner(model, [0.0] * task.action_dim, [1.0] * task.action_dim, planning, inner_loop=search.inner_loop)
    paths = [torch.from_numpy(made["proprio"]) for made in simulate_episodes(0, range(episodes))]
    starts = torch.stack([path[0] for path in paths])
    goals = torch.stack([path[min(GOAL_OFFSET, len(path) - 1)] for path in paths])
    steps = ((0,) * episodes, (GOAL_OFFSET,) * episodes)
    pairs = GoalPairs(tuple(range(episodes)), *steps, {"proprio": starts}, {"proprio": goals})
    where_simulated, image_size = simulation_device(where), config.model.encoder.image_size
    began = time.perf_counter()
    played = (lambda count: task.make_vector_env(count, where_simulated, image_size), pairs, planner)
    evaluate_planner(*played, model.log_prior.exp())
    cold = time.perf_counter() - began
    result = evaluate_planner(*played, model.log_prior.exp()).result
    seconds, planned = result["seconds"], result["seconds_planning"]
    print(f"{preset_name} on {where}: {episodes} pairs, {candidates} candidates, {iterations} iterations")
    print(f"search: {search.description}")
    print(f"{'cold s':>10}{'warm s':>10}{'of it planning':>16}{'warm s per episode':>20}")
    print(f"{cold:>10.2f}{seconds:>10.2f}{planned:>16.2f}{seconds / episodes:>20.3f}")
    print_line(
        "evaluate",
        preset=preset_name,
        episodes=episodes,
        candidates=candidates,
        iterations=iterations,
        device=where.type,
        search=search.description,
        seconds_cold=cold,
        seconds=seconds,
        seconds_planning=planned,
        peak_mebibytes=peak_mebibytes(where),
    )


_STAGES = {"collecting": "collect_seconds", "training and planning": "learn_seconds"}
"""What a demonstration says of its time, and what it is called here; the rest is its start and its page."""

_CACHES = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Where what is compiled on first use is kept."""

_MESSAGES = 2  # the descriptor that messages go to


def bench_from_nothing(*, scale: str, seeds: Sequence[int], out: Path | None) -> None:
    """Prints seconds and ALeWM's success for each seed, and their means.

    Each seed starts with a folder and a recording of its own, and with empty caches for all that is compiled on first
    use. The wall time is that of the whole command, with its start, its compiling and its page.
    The run folders stay in `out` if it is given; recordings are deleted once their model is evaluated.
    """
    check_seeds(seeds)
    print(f"alewm demo --scale {scale}, empty caches")
    print(f"{'seed':>6}{'collecting s':>14}{'learning s':>12}{'total s':>10}{'success':>10}{'capacity':>10}")
    measured = []
    with TemporaryDirectory() as folder:
        home = out or Path(folder)
        for seed in seeds:
            place = home / f"seed-{seed}"
            if place.exists():
                raise InputError(f"{place} exists already, and this begins with nothing. Delete it or give --out.")
            command = ["demo", "--scale", scale, "--seed", str(seed), "--out", str(place / "demo")]
            measured.append({"seed": seed, **_measure(command, place / "demo", _empty_caches(place / "caches"))})
            print(_row(str(seed), measured[-1]), flush=True)
            shutil.rmtree(place / "caches", ignore_errors=True)
            (place / "demo" / "two-room.h5").unlink()
    figures = (*_STAGES.values(), "total_seconds", "success_rate", "mean_capacity")
    means = {name: fmean(found[name] for found in measured) for name in figures}
    print(_row("mean", means))
    averaged = {f"mean_{name.removeprefix('mean_')}": value for name, value in means.items()}
    print_line("from-nothing", scale=scale, seeds=measured, **averaged)


def _measure(arguments: Sequence[str], demo: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    began = time.perf_counter()
    # What the command prints is for a person who waits: it goes where messages go, the table stays whole.
    done = subprocess.run(
        [sys.executable, "-m", "alewm", *arguments],
        env={**os.environ, **environment},
        stdout=_MESSAGES,
        check=False,
    )
    if done.returncode != 0:
        raise InputError(f"`alewm {shlex.join(arguments)}` ended with status {done.returncode}; see its message.")
    total = time.perf_counter() - began
    result = json.loads((demo / "result.json").read_text())
    seconds = {name: result["seconds"][stage] for stage, name in _STAGES.items()}
    kept = ("success_rate", "interval", "episodes", "mean_capacity")
    training = {"training_seconds": result["alewm"]["training"]["seconds"], "updates": result["alewm"]["step"]}
    return {**seconds, "total_seconds": total, **training, **{name: result["alewm"][name] for name in kept}}


def _empty_caches(folder: Path) -> dict[str, str]:
    caches = {name: folder / name.lower() for name in _CACHES}
    for cache in caches.values():
        cache.mkdir(parents=True)
    return {name: str(cache) for name, cache in caches.items()}


def _row(label: str, values: Mapping[str, Any]) -> str:
    collected, learned = (values[name] for name in _STAGES.values())
    seconds = f"{collected:>14.1f}{learned:>12.1f}{values['total_seconds']:>10.1f}"
    return f"{label:>6}{seconds}{values['success_rate']:>10.1%}{values['mean_capacity']:>10.1f}"
