"""All trials of a sweep in one table that changes as they do; plain lines where nobody watches."""

import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from alewm.experiments.framework.job import Job
from alewm.experiments.sweep.trial import Progressed, progress_of

LINE_EVERY_SECONDS = 10.0
STYLES = {
    "finished": "green",
    "failed": "red",
    "retrying": "yellow",
    "evaluating": "",
    "training": "",
    "waiting": "dim",
}
"""How states look, in the order of summaries."""


@dataclass
class Row:
    """One trial as the table shows it."""

    label: str
    folder: Path
    num_steps: int
    state: str = "waiting"
    attempt: int = 0
    """0 where nothing was left to do."""
    progressed: Progressed = field(default_factory=Progressed)
    note: str = ""


class Board:
    """An observer of jobs."""

    def __init__(self, rows: Mapping[str, Row], logs: Path, console: Console | None = None) -> None:
        """`rows` by the name of their job; `console` is stderr unless another is given."""
        self.rows, self._logs = rows, logs
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        # What libraries print while trials run is no result; results alone go to stdout.
        self._to_stderr = redirect_stdout(sys.stderr)
        self._began = self._last_line = time.monotonic()

    def __enter__(self) -> "Board":
        self._to_stderr.__enter__()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        self._to_stderr.__exit__(kind, error, trace)

    def succeeded(self, job: Job) -> None:
        """Its trial has finished."""
        row = self.rows[job.name]
        row.state, row.attempt, row.progressed, row.note = "finished", job.attempt, progress_of(row.folder), ""
        self._say(f"{row.label}: finished")

    def failed(self, job: Job, failure: str, *, is_tried_again: bool) -> None:
        """An attempt failed."""
        row = self.rows[job.name]
        row.state, row.note = "retrying" if is_tried_again else "failed", failure
        row.attempt = job.attempt + is_tried_again
        again = "; it is tried again" if is_tried_again else ""
        self._say(f"{row.label}: attempt {job.attempt} failed{again}: {failure} ({job.log})")

    def look(self) -> None:
        """Reads how far trials are and shows it."""
        begun = {path.name for path in self._logs.glob("*.log")}
        for name, row in self.rows.items():
            if row.state in ("finished", "failed") or f"{name}.{row.attempt}.log" not in begun:
                continue
            row.progressed = progress_of(row.folder)
            row.state = "evaluating" if (row.folder / "result.json").exists() else "training"
        if self._live is not None:
            self._live.update(self.table(self._console.height - 4), refresh=True)
        elif time.monotonic() - self._last_line >= LINE_EVERY_SECONDS:
            self._last_line = time.monotonic()
            self._say(self._summary())

    def table(self, most: int) -> Group:
        """At most `most` rows, those of trials that are under way or failed first if there are more."""
        shown = list(self.rows.values())
        if len(shown) > most:
            order = ["failed", "retrying", "evaluating", "training", "waiting", "finished"]
            shown = sorted(shown, key=lambda row: order.index(row.state))[: max(1, most)]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for head in ("trial", "state", "updates", "loss", "attempt", "last failure"):
            table.add_column(head, justify="right" if head in ("updates", "loss", "attempt") else "left", no_wrap=True)
        for row in shown:
            loss = "" if row.progressed.loss is None else f"{row.progressed.loss:.4f}"
            table.add_row(
                row.label,
                Text(row.state, STYLES[row.state]),
                f"{row.progressed.step}/{row.num_steps}",
                loss,
                str(row.attempt or ""),
                row.note.splitlines()[0] if row.note else "",
            )
        left_out = len(self.rows) - len(shown)
        return Group(table, Text(self._summary() + (f"; {left_out} not shown" if left_out else ""), "bold"))

    def _summary(self) -> str:
        counts = Counter(row.state for row in self.rows.values())
        parts = [f"{counts[state]} {state}" for state in STYLES if counts[state]]
        elapsed = timedelta(seconds=int(time.monotonic() - self._began))
        text = f"{len(self.rows)} trials: {', '.join(parts)}; {elapsed}"
        running = [row for row in self.rows.values() if row.state == "training"]
        done = "".join(f"; {row.label} {row.progressed.step}/{row.num_steps}" for row in running[:4])
        return text if self._live is not None else text + done

    def _say(self, line: str) -> None:
        if self._live is None:
            print(line, file=sys.stderr, flush=True)
