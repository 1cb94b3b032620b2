"""The trials of a sweep and their progress, in a live table on a terminal, in plain lines elsewhere.

Progress is read from the run folders, which every machine of a cluster sees.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from alewm.evaluation.settings import EvaluationSettings
from alewm.sweeps.jobs import Job
from alewm.sweeps.library import EvaluationWork, Library, TrainingRun, TrainingWork, Work

_TAIL_BYTES = 8192


@dataclass(frozen=True)
class Trial:
    """A configuration with one seed."""

    run: TrainingRun
    works: tuple[Work, ...]
    """Training, then the evaluation if there is to be one."""

    def is_done(self, library: Library) -> bool:
        return all(work.is_done(library) for work in self.works)


def make_trials(
    runs: Sequence[TrainingRun], settings: EvaluationSettings | None, *, num_ranks: int = 1, num_threads: int = 0
) -> list[Trial]:
    """A trial per run; `settings` say how each is evaluated, on validation pairs and no others."""
    assert settings is None or settings.split == "validation", "a sweep selects, so it looks at validation pairs only"
    evaluations = {run: (EvaluationWork(run, settings),) if settings is not None else () for run in runs}
    return [Trial(run, (TrainingWork(run, num_ranks, num_threads), *evaluations[run])) for run in runs]


@dataclass(frozen=True)
class RunProgress:
    """How far a run's training is."""

    step: int = 0
    loss: float | None = None


def progress_of(folder: Path) -> RunProgress:
    """What the last complete line of the run's metrics says."""
    try:
        with (folder / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return RunProgress()
    for line in reversed(lines):
        record = _record(line)
        if record.get("kind") == "train":
            return RunProgress(record["step"], record["loss"])
    return RunProgress()


def _record(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}  # being written, or cut by where the tail begins
    return found if isinstance(found, dict) else {}


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
class BoardRow:
    """One trial as the table shows it."""

    label: str
    folder: Path
    num_steps: int
    state: str = "waiting"
    attempt: int = 0
    """0 if the trial was finished before."""
    progress: RunProgress = field(default_factory=RunProgress)
    note: str = ""


class Board:
    """The live table; an `Observer` of jobs."""

    def __init__(self, rows: Mapping[str, BoardRow], logs: Path, console: Console | None = None) -> None:
        """`rows` by the name of their job; `console` is stderr unless another is given."""
        self.rows, self._logs = rows, logs
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        # Only results go to stdout; what libraries print goes to stderr.
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
        row = self.rows[job.name]
        row.state, row.attempt, row.progress, row.note = "finished", job.attempt, progress_of(row.folder), ""
        self._say(f"{row.label}: finished")

    def failed(self, job: Job, failure: str, *, is_tried_again: bool) -> None:
        row = self.rows[job.name]
        row.state, row.note = "retrying" if is_tried_again else "failed", failure
        row.attempt = job.attempt + is_tried_again
        again = "; it is tried again" if is_tried_again else ""
        self._say(f"{row.label}: attempt {job.attempt} failed{again}: {failure} ({job.log})")

    def look(self) -> None:
        """Read the progress of all trials and show it."""
        begun = {path.name for path in self._logs.glob("*.log")}
        for name, row in self.rows.items():
            if row.state in ("finished", "failed") or f"{name}.{row.attempt}.log" not in begun:
                continue
            row.progress = progress_of(row.folder)
            row.state = "evaluating" if (row.folder / "result.json").exists() else "training"
        if self._live is not None:
            self._live.update(self.table(self._console.height - 4), refresh=True)
        elif time.monotonic() - self._last_line >= LINE_EVERY_SECONDS:
            self._last_line = time.monotonic()
            self._say(self._summary())

    def table(self, most: int) -> Group:
        """At most `most` rows; if there are more trials, failed and running ones come first."""
        shown = list(self.rows.values())
        if len(shown) > most:
            order = ["failed", "retrying", "evaluating", "training", "waiting", "finished"]
            shown = sorted(shown, key=lambda row: order.index(row.state))[: max(1, most)]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for head in ("trial", "state", "updates", "loss", "attempt", "last failure"):
            table.add_column(head, justify="right" if head in ("updates", "loss", "attempt") else "left", no_wrap=True)
        for row in shown:
            loss = "" if row.progress.loss is None else f"{row.progress.loss:.4f}"
            table.add_row(
                row.label,
                Text(row.state, STYLES[row.state]),
                f"{row.progress.step}/{row.num_steps}",
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
        done = "".join(f"; {row.label} {row.progress.step}/{row.num_steps}" for row in running[:4])
        return text if self._live is not None else text + done

    def _say(self, line: str) -> None:
        if self._live is None:
            print(line, file=sys.stderr, flush=True)
