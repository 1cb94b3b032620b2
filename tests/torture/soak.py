"""Thousands of planned episodes in one process, which must not take more memory, files or threads than at the start."""

import os
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

PRETRAINED = Path(__file__).parents[2] / "pretrained" / "two-room-tiny"
EPISODES_AT_ONCE = 50
WARM_UP = 3
"""Evaluations before the process is measured: caches fill, and allocators take what they need."""
MOST_GROWTH_BYTES = 40 * 2**20


class Held(NamedTuple):
    """What a process holds."""

    memory: int
    files: int
    threads: int

    @classmethod
    def now(cls) -> "Held":
        """Of this process."""
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return cls(resident, len(os.listdir("/proc/self/fd")), threading.active_count())  # noqa: PTH208 (counted only)


def soak(num_episodes: int, seconds: float) -> tuple[int, str]:
    """How many episodes were planned, and what has grown in words; nothing if nothing has."""
    import torch

    from alewm.evaluation.evaluate_run import evaluate_run
    from alewm.evaluation.settings import EvaluationSettings
    from alewm.planning.planner import PlanningConfig
    from alewm.planning.search import CEMConfig

    search = CEMConfig(num_candidates=20, num_iterations=2, num_elites=2)
    settings = EvaluationSettings(num_episodes=EPISODES_AT_ONCE, planning=PlanningConfig(cem=search))
    end, done, first = time.monotonic() + seconds, 0, None
    torch.set_num_threads(1)
    with TemporaryDirectory() as place:
        number = 0
        while done < num_episodes and time.monotonic() < end:
            out = Path(place) / str(number % 2)  # written anew again and again
            found = evaluate_run(
                PRETRAINED, settings, device=torch.device("cpu"), num_animations=0, out=out, is_silent=True
            )
            done += int(found.result["episodes"])
            number += 1
            if number == WARM_UP:
                first = Held.now()
        last = Held.now()
    if first is None:
        return done, ""
    print(f"soak: {done:,} episodes; memory {first.memory / 2**20:.0f} to {last.memory / 2**20:.0f} MiB, open files")
    print(f"      {first.files} to {last.files}, threads {first.threads} to {last.threads}", flush=True)
    has_grown = last.memory > first.memory + MOST_GROWTH_BYTES or last.files > first.files
    return done, f"grew from {first} to {last}" if has_grown or last.threads > first.threads else ""
