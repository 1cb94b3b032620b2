"""From an empty folder to an evaluated model: record, train, evaluate, by the commands a person would type.

Every seed begins with nothing: its own folder, its own recording, and, unless `warm`, empty caches for all that is
compiled on first use (C sources, Triton kernels, compiled graphs). What is measured is the wall time of each command,
its start and its compiling included.
"""

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

from alewm.benchmarks.timing import print_line
from alewm.errors import InputError
from alewm.experiments.presets import preset

STAGES = ("collect", "train", "evaluate")

_CACHES = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Where what is compiled on first use is kept."""


_MESSAGES = 2  # the descriptor that messages go to


def bench_from_nothing(
    *,
    preset_name: str,
    seeds: Sequence[int],
    episodes: int,
    steps: int | None,
    learning_rate: float | None,
    collect_flags: str,
    train_flags: str,
    evaluate_flags: str,
    warm: bool,
    out: Path | None,
) -> None:
    """Prints seconds of each stage and success for each seed, and their means.

    The run folders stay in `out` if it is given; recordings are deleted once their model is evaluated.
    """
    task = preset(preset_name).task
    if not seeds or len(set(seeds)) != len(seeds):
        raise InputError(f"Give one seed or several different ones, got {list(seeds)}.")
    given = {"--steps": steps, "--learning-rate": learning_rate}
    chosen = [part for flag, value in given.items() if value is not None for part in (flag, str(value))]
    print(f"{preset_name}, {episodes:,} episodes of {task}, {'warm' if warm else 'empty'} caches")
    print(f"{'seed':>6}" + "".join(f"{stage + ' s':>13}" for stage in STAGES) + f"{'total s':>13}{'success':>10}")
    measured = []
    with TemporaryDirectory() as folder:
        home = out or Path(folder)
        for seed in seeds:
            place = home / f"seed-{seed}"
            if place.exists():
                raise InputError(f"{place} exists already, and this begins with nothing. Delete it or give --out.")
            place.mkdir(parents=True)
            data, run = str(place / "episodes.h5"), str(place / "run")
            commands = {
                "collect": ["collect", task, "--episodes", str(episodes), "--out", data, *shlex.split(collect_flags)],
                "train": [
                    *("train", preset_name, "--data", data, "--out", run, "--seed", str(seed)),
                    *(*chosen, *shlex.split(train_flags)),
                ],
                "evaluate": ["evaluate", run, *shlex.split(evaluate_flags)],
            }
            measured.append(_measure(seed, commands, Path(run), {} if warm else _empty_caches(place)))
            print(_row(str(seed), measured[-1]), flush=True)
            Path(data).unlink()
    figures = (*(f"{stage}_seconds" for stage in STAGES), "total_seconds", "success_rate")
    means = {name: fmean(found[name] for found in measured) for name in figures}
    print(_row("mean", means))
    print_line(
        "from-nothing",
        preset=preset_name,
        episodes=episodes,
        steps=steps,
        learning_rate=learning_rate,
        warm=warm,
        seeds=measured,
        **{f"mean_{name}": value for name, value in means.items()},
    )


def _measure(
    seed: int, commands: Mapping[str, Sequence[str]], run: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    seconds = {}
    for stage, arguments in commands.items():
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
        seconds[f"{stage}_seconds"] = time.perf_counter() - began
    for cache in environment.values():
        shutil.rmtree(cache, ignore_errors=True)
    # With settings other than the defaults, results lie below the run; there is one, since the run is new.
    result = json.loads(next(iter(sorted(run.rglob("result.json")))).read_text())
    kept = {name: result[name] for name in ("success_rate", "interval", "episodes", "mean_capacity")}
    return {"seed": seed, **seconds, "total_seconds": sum(seconds.values()), **kept}


def _empty_caches(place: Path) -> dict[str, str]:
    caches = {name: place / "caches" / name.lower() for name in _CACHES}
    for cache in caches.values():
        cache.mkdir(parents=True)
    return {name: str(cache) for name, cache in caches.items()}


def _row(label: str, values: Mapping[str, Any]) -> str:
    stages = "".join(f"{values[f'{stage}_seconds']:>13.1f}" for stage in STAGES)
    return f"{label:>6}{stages}{values['total_seconds']:>13.1f}{values['success_rate']:>10.1%}"
