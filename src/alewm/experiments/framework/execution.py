"""Doing what is missing: in this process, or in several."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch

from alewm.experiments.framework.experiment import Experiment, Outcome
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.results import Results
from alewm.experiments.framework.work import Training, Work
from alewm.progress import Progress
from alewm.workers import follow_parent, num_available_cores


def execute(experiment: Experiment, library: Library, *, jobs: int, device: torch.device) -> Outcome:
    """What the experiment shows, once everything it needs has been done; finished work is not repeated."""
    library.check_data(experiment.data_sets)
    results = Results(library)
    _perform([Training(run) for run in experiment.runs], "training", library, jobs, device)
    for stage in experiment.stages:
        _perform(stage.works(results), stage.title, library, jobs, device)
    return experiment.outcome(results)


def _perform(works: Sequence[Work], title: str, library: Library, jobs: int, device: torch.device) -> None:
    missing = [work for work in dict.fromkeys(works) if not work.is_done(library)]
    workers = min(jobs, len(missing))
    if workers <= 1:
        for work in missing:
            work.perform(library, device, is_silent=False)
        return
    # Spawned, not forked: a fork copies torch's thread pools in whatever state they are.
    context = multiprocessing.get_context("spawn")
    num_threads = max(1, num_available_cores() // workers)
    with (
        ProcessPoolExecutor(workers, mp_context=context, initializer=follow_parent) as pool,
        Progress(title, len(works), "units", done=len(works) - len(missing)) as bar,
    ):
        pending = {pool.submit(_work, work, library, device, num_threads): work for work in missing}
        try:
            for future in as_completed(pending):
                future.result()
                bar.advance(note=pending[future].run.name)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _work(work: Work, library: Library, device: torch.device, num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    work.perform(library, device, is_silent=True)
