"""Who does jobs: the contract of executors, and one loop that gives them jobs, tries failed ones again and reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from alewm.experiments.framework.job import Job
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.work import Work

LOOK_EVERY_SECONDS = 0.5


@dataclass(frozen=True)
class Ended:
    """A job that is no longer being done."""

    job: Job
    failure: str | None
    """Why it failed, or None."""


@runtime_checkable
class Executor(Protocol):
    """Processes that do jobs, as many at once as there is room for."""

    device: str
    """The device jobs are to compute on, by name."""
    num_threads: int
    """Threads each of them may use."""

    def submit(self, job: Job) -> None:
        """Have `job` done when there is room."""

    def wait(self, seconds: float) -> list[Ended]:
        """Those that ended since the last call; after `seconds` at most, also if none did."""

    def close(self) -> None:
        """End whatever is still being done, and let go of all processes."""


@runtime_checkable
class Observer(Protocol):
    """Whoever wants to know how jobs fare."""

    def succeeded(self, job: Job) -> None:
        """Everything is done."""

    def failed(self, job: Job, failure: str, *, is_tried_again: bool) -> None:
        """An attempt failed."""

    def look(self) -> None:
        """Some time has passed."""


def finish_all(jobs: Sequence[Job], executor: Executor, observer: Observer, *, retries: int = 0) -> dict[str, str]:
    """Why jobs failed for good, by name, once all have ended; each failed one is tried again `retries` times."""
    for job in jobs:
        executor.submit(job)
    first = {job.name: job.attempt for job in jobs}
    failures: dict[str, str] = {}
    num_left = len(jobs)
    observer.look()
    while num_left:
        for ended in executor.wait(LOOK_EVERY_SECONDS):
            job = ended.job
            if ended.failure is None:
                observer.succeeded(job)
                num_left -= 1
                continue
            is_tried_again = job.attempt - first[job.name] < retries
            observer.failed(job, ended.failure, is_tried_again=is_tried_again)
            if is_tried_again:
                executor.submit(job.again())
            else:
                failures[job.name] = ended.failure
                num_left -= 1
        observer.look()
    return failures


def make_job(name: str, works: Sequence[Work], library: Library, executor: Executor, logs: Path) -> Job:
    """A job for `executor`; attempts that left a log are counted on."""
    runs = {work.run.key: work.run for work in works}
    return Job(
        name,
        tuple(works),
        library.holding(*runs.values()),
        executor.device,
        executor.num_threads,
        Path.cwd(),
        logs,
        attempt=1 + len(list(logs.glob(f"{name}.*.log"))),
    )
