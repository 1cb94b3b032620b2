"""Doing what is missing for an experiment: in this process, or in those of an executor."""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import torch

from alewm.errors import InputError
from alewm.experiments.framework.executor import Executor, finish_all, make_job
from alewm.experiments.framework.experiment import Experiment, Outcome
from alewm.experiments.framework.job import Job
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.local_processes import LocalProcesses
from alewm.experiments.framework.results import Results
from alewm.experiments.framework.share import Share
from alewm.experiments.framework.work import Training, Work
from alewm.progress import Progress

LOGS = Path("experiments") / "logs"
"""The folder among runs for what other processes print."""


def execute(
    experiment: Experiment, library: Library, *, jobs: int, device: torch.device, executor: Executor | None = None
) -> Outcome:
    """What the experiment shows, once everything it needs has been done; finished work is not repeated.

    Without an `executor`, `jobs` processes of this machine do it; one job is this process.
    """
    if executor is None and jobs > 1:
        executor = LocalProcesses.sharing(jobs, device, Share())
    with nullcontext() if executor is None else closing(executor):
        library.check_data(experiment.data_sets)
        results = Results(library)
        _perform([Training(run) for run in experiment.runs], "training", library, device, executor)
        for stage in experiment.stages:
            _perform(stage.works(results), stage.title, library, device, executor)
    return experiment.outcome(results).noting(library.data_notes(experiment.data_sets))


def _perform(
    works: Sequence[Work], title: str, library: Library, device: torch.device, executor: Executor | None
) -> None:
    missing = [work for work in dict.fromkeys(works) if not work.is_done(library)]
    if executor is None or not missing:
        for work in missing:
            work.perform(library, device)
        return
    logs = library.root / LOGS
    jobs = [make_job(f"{work.run.name}-{index}", [work], library, executor, logs) for index, work in enumerate(missing)]
    with Progress(title, len(works), "units", done=len(works) - len(missing)) as bar:
        failures = finish_all(jobs, executor, _Bar(bar))
    if failures:
        lines = "\n".join(f"  {name}: {failure}" for name, failure in failures.items())
        raise InputError(f"{len(failures)} of {len(jobs)} units of work failed; {logs} has what they printed:\n{lines}")


class _Bar:
    """Shows jobs as one bar."""

    def __init__(self, bar: Progress) -> None:
        self.bar = bar

    def succeeded(self, job: Job) -> None:
        """One more."""
        self.bar.advance(note=job.works[0].run.name)

    def failed(self, job: Job, failure: str, *, is_tried_again: bool) -> None:
        """Said at the end."""

    def look(self) -> None:
        """Nothing changes with time alone."""
        self.bar.advance(0)
