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
from alewm.experiments.framework.results import NotThereYetError, Results
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
        _perform(chains(experiment, results), "runs", library, device, executor)
        for stage in experiment.stages:
            _perform([[work] for work in stage.works(results)], stage.title, library, device, executor)
    return experiment.outcome(results).noting(library.data_notes(experiment.data_sets))


def chains(experiment: Experiment, results: Results) -> list[list[Work]]:
    """Every run's training, and behind it what is to be done with the model whatever the others turn out to be.

    So models are evaluated as they come, and whoever has to stop early has results; work that fails stops those after
    it, unless other processes do them.
    """
    by_run: dict[str, list[Work]] = {run.key: [Training(run)] for run in experiment.runs}
    for stage in experiment.stages:
        try:
            works = stage.works(results)
        except NotThereYetError:
            break
        for work in works:
            by_run[work.run.key].append(work)
    return list(by_run.values())


def _perform(
    asked: Sequence[Sequence[Work]], title: str, library: Library, device: torch.device, executor: Executor | None
) -> None:
    """Does what is missing of each chain, in its order; chains side by side where there is an executor."""
    left = [[work for work in dict.fromkeys(chain) if not work.is_done(library)] for chain in asked]
    missing = list(dict.fromkeys(map(tuple, filter(None, left))))
    if executor is None or not missing:
        for work in (work for chain in missing for work in chain):
            if not work.is_done(library):  # under the name of another preset with the same configuration
                work.perform(library, device)
        return
    logs = library.root / LOGS
    jobs = [make_job(f"{chain[0].run.name}-{i}", chain, library, executor, logs) for i, chain in enumerate(missing)]
    with Progress(title, len(asked), "units", done=len(asked) - len(missing)) as bar:
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
