"""A pool of processes that starts them whole and ends with the block that uses it."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import torch

from alewm.workers import context_for_workers, follow_parent, starting_workers


class WorkerPool(ProcessPoolExecutor):
    """`num_workers` processes that have imported `modules`, each with one thread.

    Whatever ends its block early, such as an interrupt, ends the processes at once: a task of theirs may take minutes,
    and nobody wants its outcome any more.
    """

    def __init__(self, num_workers: int, *modules: str) -> None:
        context = context_for_workers(__name__, *modules)
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
    follow_parent(end)
    # There is a worker for every core already: neither torch nor Mesa's software rendering needs more threads.
    torch.set_num_threads(1)
    os.environ.setdefault("LP_NUM_THREADS", "1")
