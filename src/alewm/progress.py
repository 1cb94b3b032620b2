"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

LINE_EVERY_SECONDS = 10.0


class Progress:
    """A bar with rate and time left on a terminal, plain lines in a log file; both on stderr."""

    def __init__(self, title: str, total: int, unit: str, *, done: int = 0, is_silent: bool = False) -> None:
        """`done` units were finished before, by an interrupted run; they do not count towards the rate.

        A silent one counts, and shows nothing.
        """
        self.title, self.total, self.unit, self.is_silent = title, total, unit, is_silent
        self.done = self.before = done
        self.began = self.last_line = time.monotonic()
        self.bar: Bar | None = None
        if sys.stderr.isatty() and not is_silent:
            self.bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(unit),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def __enter__(self) -> "Progress":
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task(self.title, total=self.total, completed=self.done)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def finish(self) -> None:
        """Finish early: the units done so far become the total."""
        self.total = self.done
        if self.bar is not None:
            self.bar.update(self.task, total=self.total, completed=self.done)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self.bar is not None:
            self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Counts `amount` more units as done; `note` says what they were."""
        self.done += amount
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, description=f"{self.title} {note}".strip())
            return
        if self.is_silent:
            return
        now = time.monotonic()
        if now - self.last_line >= LINE_EVERY_SECONDS or (amount and self.done >= self.total):
            self.last_line = now
            rate = (self.done - self.before) / max(now - self.began, 1e-9)
            speed = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
            pace = f", {speed}/s, {(self.total - self.done) / rate:.0f} s left" if rate else ""
            text = f"{self.title}: {self.done}/{self.total} {self.unit}{pace}. {note}"
            print(text.strip(), file=sys.stderr, flush=True)
