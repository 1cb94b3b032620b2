"""SIGTERM as an interrupt, and an answer to either signal before the command line is loaded.

Imports nothing of ours, because it is the first thing that the command does.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

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
