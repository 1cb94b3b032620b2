"""From an empty folder to an evaluated model, by the one command a person would type: `alewm demo`.

Every seed begins with nothing: its own folder, its own recording, and, unless `warm`, empty caches for all that is
compiled on first use (C sources, Triton kernels, compiled graphs). What is measured is the wall time of the command,
its start, its compiling and its page included.
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

from alewm.config import check_seeds
from alewm.errors import InputError
from alewm_lab.benchmarks.timing import print_line

_STAGES = {"collecting": "collect_seconds", "training and planning": "learn_seconds"}
"""What a demonstration says of its time, and what it is called here; the rest is its start and its page."""

_CACHES = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Where what is compiled on first use is kept."""

_MESSAGES = 2  # the descriptor that messages go to


def bench_from_nothing(*, scale: str, seeds: Sequence[int], warm: bool, out: Path | None) -> None:
    """Prints seconds and ALeWM's success for each seed, and their means.

    The run folders stay in `out` if it is given; recordings are deleted once their model is evaluated.
    """
    check_seeds(seeds)
    print(f"alewm demo --scale {scale}, {'warm' if warm else 'empty'} caches")
    print(f"{'seed':>6}{'collecting s':>14}{'learning s':>12}{'total s':>10}{'success':>10}{'capacity':>10}")
    measured = []
    with TemporaryDirectory() as folder:
        home = out or Path(folder)
        for seed in seeds:
            place = home / f"seed-{seed}"
            if place.exists():
                raise InputError(f"{place} exists already, and this begins with nothing. Delete it or give --out.")
            caches = {} if warm else _empty_caches(place / "caches")
            command = ["demo", "--scale", scale, "--seed", str(seed), "--out", str(place / "demo")]
            measured.append({"seed": seed, **_measure(command, place / "demo", caches)})
            print(_row(str(seed), measured[-1]), flush=True)
            shutil.rmtree(place / "caches", ignore_errors=True)
            (place / "demo" / "two-room.h5").unlink()
    figures = (*_STAGES.values(), "total_seconds", "success_rate", "mean_capacity")
    means = {name: fmean(found[name] for found in measured) for name in figures}
    print(_row("mean", means))
    averaged = {f"mean_{name.removeprefix('mean_')}": value for name, value in means.items()}
    print_line("from-nothing", scale=scale, warm=warm, seeds=measured, **averaged)


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
