"""Jobs: work that one process does in order, its resources, the loop that submits and retries, and the dry run."""

import os
import socket
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from alewm.devices import find_device
from alewm.errors import InputError
from alewm.files import open_unlinked
from alewm.progress import Progress
from alewm.sweeps.library import Library, TrainingWork, Work


@dataclass(frozen=True)
class JobResources:
    """Cores and GPUs of one job; the executor fills in what is not given."""

    cpus: int | None = None
    """Cores, for arithmetic and for decoding frames."""
    gpus: float | None = None
    """GPUs, or a fraction of one; 0 keeps it on the CPU."""

    def __post_init__(self) -> None:
        if self.cpus is not None and self.cpus < 1:
            raise InputError(f"--cpus-per-trial is a number of cores of 1 or more, got {self.cpus}.")
        if self.gpus is not None and not 0 <= self.gpus <= 1:
            raise InputError(f"--gpus-per-trial is 0, 1 or a fraction of 1, got {self.gpus:g}.")

    def completed(self, device: str, num_cpus: float, num_gpus: float) -> "JobResources":
        """The same with both numbers given, on machines that have so many cores and GPUs in all.

        Unless asked otherwise a job has one GPU where there are GPUs, and its share of the cores; else one core.
        """
        gpus = self.gpus
        if gpus is None:
            gpus = 1.0 if device.startswith("cuda") or (device == "auto" and num_gpus > 0) else 0.0
        even = int(num_cpus / num_gpus * gpus) if num_gpus else 1
        return replace(self, gpus=gpus, cpus=self.cpus or max(even, 1))

    def device(self, asked: str) -> str:
        """The name of the device to compute on, where `asked` may be auto: without a GPU, the CPU."""
        if self.gpus != 0:
            return asked
        if asked.startswith("cuda"):
            raise InputError(f"--device {asked} needs a GPU, but --gpus-per-trial is 0. Leave one of them out.")
        return "cpu" if asked == "auto" else asked


@dataclass(frozen=True)
class Job:
    """Work, and everything that a process on this or another machine needs to do it."""

    name: str
    """What it is called in tables and logs."""
    works: tuple[Work, ...]
    """In this order; what is done already is not repeated."""
    library: Library
    """Where runs and data are."""
    device: str
    """A name, because only the process that computes knows its devices."""
    num_threads: int
    """Threads for arithmetic."""
    folder: Path
    """Where relative paths start."""
    logs: Path
    """Folder of what attempts print."""
    attempt: int = 1
    """Counts how often it has been tried, over all commands that asked for it."""

    @property
    def log(self) -> Path:
        """The log of this attempt, created when it starts."""
        return self.logs / f"{self.name}.{self.attempt}.log"

    def again(self) -> "Job":
        """The same job, to be tried once more."""
        return replace(self, attempt=self.attempt + 1)

    def perform(self) -> str | None:
        """Do the work and return None, or the reason of a failure; everything that is printed goes to the log."""
        num_threads, library = torch.get_num_threads(), self.library.below(self.folder)
        try:
            with _printing_to(self.folder / self.log):
                try:
                    print(f"# attempt {self.attempt} of {self.name}: process {os.getpid()} on {socket.gethostname()}")
                    torch.set_num_threads(self.num_threads)
                    for work in self.works:
                        if not work.is_done(library):
                            # A run names the command that makes it, with paths as they were typed.
                            command = work.command(self.library)
                            print(f"# {command}")
                            work.perform(library, find_device(self.device), command)
                except Exception as error:
                    traceback.print_exc()
                    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        except OSError as error:
            return f"{error.strerror or error}: {error.filename}"
        finally:
            torch.set_num_threads(num_threads)
        return None


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Redirect all output to `path`: that of this code, of libraries and of child processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", buffering=1, encoding="utf-8", opener=open_unlinked) as file:
        usual = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
        try:
            for descriptor in usual:
                os.dup2(file.fileno(), descriptor)
            with redirect_stdout(file), redirect_stderr(file):
                yield
        finally:
            for descriptor, copy in usual.items():
                os.dup2(copy, descriptor)
                os.close(copy)


LOOK_EVERY_SECONDS = 0.5


@dataclass(frozen=True)
class JobResult:
    """A job that has ended."""

    job: Job
    failure: str | None
    """Why it failed, or None."""


@runtime_checkable
class Executor(Protocol):
    """Runs jobs in other processes, as many at once as there is room for."""

    device: str
    """The device jobs are to compute on, by name."""
    num_threads: int
    """Threads each of them may use."""

    def submit(self, job: Job) -> None:
        """Start `job` when there is room."""

    def wait(self, seconds: float) -> list[JobResult]:
        """The jobs that ended since the last call; waits for `seconds` at most."""

    def close(self) -> None:
        """End all jobs that still run, and all processes."""


def finish_all(jobs: Sequence[Job], executor: Executor, bar: Progress, *, retries: int = 0) -> dict[str, str]:
    """Run all jobs and return the reasons of failures by name; a failed job is retried `retries` times."""
    for job in jobs:
        executor.submit(job)
    first = {job.name: job.attempt for job in jobs}
    failures: dict[str, str] = {}
    num_left = len(jobs)
    while num_left:
        for ended in executor.wait(LOOK_EVERY_SECONDS):
            job, is_retried = ended.job, False
            if ended.failure is not None:
                is_retried = job.attempt - first[job.name] < retries
                again = "; it is tried again" if is_retried else ""
                bar.say(f"{job.name}: attempt {job.attempt} failed{again}: {ended.failure} ({job.log})")
            if is_retried:
                executor.submit(job.again())
                continue
            num_left -= 1
            if ended.failure is not None:
                failures[job.name] = ended.failure
            bar.advance(note=job.name)
        bar.advance(0)
    return failures


def make_job(name: str, works: Sequence[Work], library: Library, executor: Executor, logs: Path) -> Job:
    """A job for `executor`; its attempt number continues that of earlier logs."""
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


def planned_work(
    trainings: Sequence[TrainingWork],
    works: Sequence[Work],
    library: Library,
    estimate: Sequence[str] = (),
    num_later: int = 0,
) -> Iterator[str]:
    """What a dry run prints: the missing commands, and comments that start with #, so that a shell can run the whole.

    `works` follow the trainings; `num_later` more depend on their results, and have no command yet. `estimate` is
    printed last.
    """
    missing = [training for training in trainings if not training.is_done(library)]
    if missing:
        yield f"# training: {len(missing)} of {len(trainings)} runs are missing"
    yield from (training.command(library) for training in missing)
    left = missing_works(works, library)
    if left:
        yield f"# evaluations and measurements: {len(left)}"
    yield from (work.command(library) for work in left)
    if num_later:
        yield f"# planning to test pairs: at most {num_later}, known once the work above is done"
    yield (
        f"# {len(trainings)} runs, {len(trainings) - len(missing)} of them finished; "
        f"at most {len(left) + num_later} evaluations and measurements missing"
    )
    yield from (f"# {line}" for line in estimate)


def missing_works(works: Sequence[Work], library: Library) -> list[Work]:
    """Those that are not done, each once."""
    return [work for work in dict.fromkeys(works) if not work.is_done(library)]
