"""SIGINT and SIGTERM: answered before the command line is loaded, raised within it, deferred while an update is made.

Imports nothing of ours, because it is the first thing that the command does.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

NOTHING_KEPT = "Nothing of this command was kept; repeat it to start again."


class Terminated(KeyboardInterrupt):
    """SIGTERM, which cluster schedulers and container runtimes send, handled as Ctrl-C is."""


def end_quietly_while_loading(program: str) -> None:
    """Until `terminations_raised` takes over, a signal ends the process with one line instead of a traceback."""

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        # os._exit, because an exception raised inside an import may be turned into another one.
        sys.stderr.write(f"\n{program}: interrupted. {NOTHING_KEPT}\n")
        sys.stderr.flush()
        os._exit(128 + number)

    for number in _heeded():
        signal.signal(number, leave)


def _heeded() -> list[signal.Signals]:
    """SIGINT and SIGTERM, except those that were ignored at the start, as by `nohup` and `&`."""
    return [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]


@contextmanager
def terminations_raised() -> Iterator[None]:
    """Within the block SIGINT raises KeyboardInterrupt and SIGTERM raises Terminated."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(_number: int, _frame: FrameType | None) -> NoReturn:
        raise Terminated

    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: terminate}
    before = {number: signal.signal(number, handlers[number]) for number in _heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class DeferredInterrupts:
    """Within the block the first interrupt waits for `answer`; a second one is answered at once, unless `all_wait`.

    This holds for signals with a handler in Python: SIGINT, and SIGTERM within `terminations_raised`. The signal
    handler calls `on_first`, which must not use buffered output.
    """

    def __init__(self, on_first: Callable[[], None] = lambda: None, *, all_wait: bool = False) -> None:
        self._on_first, self._all_wait = on_first, all_wait
        self._handlers: dict[int, Any] = {}
        self._first: int | None = None

    def __enter__(self) -> "DeferredInterrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if callable(handler := signal.getsignal(number)):
                    self._handlers[number] = handler
                    signal.signal(number, self._defer)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @property
    def is_waiting(self) -> bool:
        """Whether there was an interrupt."""
        return self._first is not None

    def answer(self) -> NoReturn:
        """Raise what the first interrupt would have raised; KeyboardInterrupt if only another process had one."""
        if self._first is not None:
            self._handlers[self._first](self._first, None)
        raise KeyboardInterrupt

    def _defer(self, number: int, frame: FrameType | None) -> None:
        if not self.is_waiting:
            self._first = number
            self._on_first()
        elif not self._all_wait:
            self._handlers[number](number, frame)
