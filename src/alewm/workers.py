"""Processes that work for another: how many there should be, and that they end with it."""

import multiprocessing
import os
import signal
import threading
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext

from alewm.errors import InputError


def num_available_cores() -> int:
    """Cores this process may use, where the system says so; else all of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def num_processes(jobs: int) -> int:
    """How many processes `--jobs` asks for; 0 is one per core."""
    if jobs < 0:
        raise InputError(f"--jobs is a number of processes, or 0 for one per core; got {jobs}.")
    return jobs or num_available_cores()


def context_for_workers(*modules: str) -> BaseContext:
    """How to start processes that need `modules`.

    Forked from a server that has imported them and nothing else: sixteen processes that each import torch take several
    seconds to begin, and forking a process with threads, such as this one, may deadlock.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["alewm.silent_interrupt", *modules])
    _start_server()
    return context


def _start_server() -> None:
    """Start the server with interrupts blocked until it has imported what makes it answer them in silence."""
    resource_tracker.ensure_running()  # which the server needs, and whose start would unblock interrupts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_parent() -> None:
    """Leave interrupts to the process that started this worker, and end when it does: a killed one says no goodbye."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
