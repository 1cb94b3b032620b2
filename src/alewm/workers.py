"""Worker processes of this machine: interrupts do not break their start, and they end with their parent.

`WorkerPool` is for many small tasks, `WorkerProcess` for one that keeps its state.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from types import TracebackType
from typing import Any

from alewm.errors import InputError
from alewm.interrupts import Terminated, terminations_raised

LONGEST_END_SECONDS = 60.0
"""How long a worker may take to end after it was asked to: the update that it is making, and a checkpoint."""


def num_available_cores() -> int:
    """Cores this process may use, where the system says so; else all of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def num_processes(jobs: int) -> int:
    """How many processes `--jobs` asks for; 0 is one per core."""
    if jobs < 0:
        raise InputError(f"--jobs is a number of processes, or 0 for one per core; got {jobs}.")
    return jobs or num_available_cores()


@contextmanager
def starting_workers() -> Iterator[None]:
    """Processes that are started in this block are started whole: an interrupt waits for its end, and spares them.

    A terminal interrupts all processes at once. One that is still importing would answer with a traceback, and one
    whose parent goes away while starting it would miss what the parent had prepared for it, with a traceback too.
    """
    if threading.current_thread() is not threading.main_thread():  # where no interrupt is ever raised
        yield
        return
    interrupts: list[int] = []
    answer = signal.signal(signal.SIGINT, lambda number, _frame: interrupts.append(number))
    try:
        with _interrupts_blocked():
            yield
    finally:
        signal.signal(signal.SIGINT, answer)
        if interrupts:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """For the processes that are started: they inherit it, and `follow_parent` replaces it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # whose own start, within that of another process, would unblock interrupts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_parent(*ends: Connection) -> None:
    """Leave interrupts to the process that started this worker, and exit when that one dies, by whatever cause.

    It exits as well when the parent closes its side of one of the `ends`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel, *ends])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class WorkerPool(ProcessPoolExecutor):
    """`num_workers` processes that have imported `modules`, each with one thread.

    An error or an interrupt in the `with` block ends the processes at once: a task may take minutes, and its result is
    no longer needed.
    """

    def __init__(self, num_workers: int, *modules: str) -> None:
        context: BaseContext = multiprocessing.get_context("spawn")
        if "forkserver" in multiprocessing.get_all_start_methods():
            # Forked from a server that has imported the modules and nothing else: sixteen processes that each import
            # torch take several seconds to begin, and forking a process with threads, such as this one, may deadlock.
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([__name__, *modules])
            with starting_workers():
                forkserver.ensure_running()
        end, self._goes_on = context.Pipe(duplex=False)
        super().__init__(num_workers, mp_context=context, initializer=_begin_worker, initargs=(end,))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A future of `fn(*args, **kwargs)`. The first tasks start the processes."""
        with starting_workers():
            return super().submit(fn, *args, **kwargs)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait until all processes have ended: after their tasks, or now if an error is on its way."""
        if kind is not None:
            self._goes_on.close()
        self.shutdown(wait=True, cancel_futures=True)
        self._goes_on.close()


def _begin_worker(end: Connection) -> None:
    import torch

    follow_parent(end)
    # There is a worker for every core already: neither torch nor Mesa's software rendering needs more threads.
    torch.set_num_threads(1)
    os.environ.setdefault("LP_NUM_THREADS", "1")


class WorkerProcess:
    """A process that runs `target(pipe, *arguments)`, where `pipe` is its side of the worker's `pipe`."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        # Spawned, not forked: a fork would copy torch's thread pools in an undefined state.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_run_as_worker, args=(target, theirs, *arguments), daemon=True)
        with starting_workers():
            self.process.start()
        theirs.close()

    def kill(self) -> None:
        """End it now."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.pipe.close()


def end_workers(workers: Sequence[WorkerProcess]) -> None:
    """End all of them: a training writes a checkpoint first, unless that takes too long or is interrupted again."""
    for worker in workers:
        worker.process.terminate()
    if isinstance(sys.exception(), KeyboardInterrupt) and any(worker.process.is_alive() for worker in workers):
        print("\nInterrupted: trainings write a checkpoint. Interrupt again to stop at once.", file=sys.stderr)
    patience = time.monotonic() + LONGEST_END_SECONDS
    try:
        for worker in workers:
            worker.process.join(max(0.0, patience - time.monotonic()))
    finally:
        for worker in workers:
            worker.kill()


def _run_as_worker(target: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    follow_parent()
    with suppress(Terminated), terminations_raised():
        target(pipe, *arguments)
