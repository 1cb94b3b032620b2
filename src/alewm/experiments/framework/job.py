"""A job: units of work that one process does one after the other, in whatever process an executor has for it."""

import os
import shlex
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from alewm.devices import find_device
from alewm.errors import InputError
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.work import Work


@dataclass(frozen=True)
class Job:
    """Work and everything another process, perhaps on another machine, needs to know to do it."""

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
        """What this attempt prints; it appears when the attempt begins."""
        return self.logs / f"{self.name}.{self.attempt}.log"

    def again(self) -> "Job":
        """The same job, to be tried once more."""
        return replace(self, attempt=self.attempt + 1)

    def perform(self) -> str | None:
        """None once everything is done, or why it could not be; whatever is printed meanwhile goes to the log."""
        here, typed, num_threads = Path.cwd(), sys.argv, torch.get_num_threads()
        try:
            os.chdir(self.folder)
            with _printing_to(self.log):
                try:
                    print(f"# attempt {self.attempt} of {self.name}: process {os.getpid()} on {socket.gethostname()}")
                    torch.set_num_threads(self.num_threads)
                    for work in self.works:
                        if not work.is_done(self.library):
                            # A run says which command made it, not which one had it made.
                            sys.argv = shlex.split(work.command(self.library), comments=True)
                            print(f"# {work.command(self.library)}")
                            work.perform(self.library, find_device(self.device))
                except Exception as error:
                    traceback.print_exc()
                    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        except OSError as error:
            return f"{error.strerror or error}: {error.filename}"
        finally:
            os.chdir(here)
            sys.argv = typed
            torch.set_num_threads(num_threads)
        return None


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Sends everything that is printed to `path`: by this code, by libraries, and by processes started meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", buffering=1, encoding="utf-8") as file:
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
