"""Processes that work for another: how many there should be, and that they end with it."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait

from alewm.errors import InputError


def num_available_cores() -> int:
    """Cores this process may use, where the system says so; else all of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def num_processes(jobs: int) -> int:
    """How many processes `--jobs` asks for; 0 is one per core."""
    if jobs < 0:
        raise InputError(f"--jobs is a number of processes, or 0 for one per core; got {jobs}.")
    return jobs or num_available_cores()


def follow_parent() -> None:
    """Leave interrupts to the process that started this worker, and end when it does: a killed one says no goodbye."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
