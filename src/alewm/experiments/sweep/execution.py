"""Running a sweep: what is missing is trained and evaluated by an executor, and the outcome read from run folders."""

import hashlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from alewm.evaluation.settings import EvaluationSettings
from alewm.experiments.framework.executor import Executor, finish_all, make_job
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.run import Run
from alewm.experiments.sweep.board import Board, Row
from alewm.experiments.sweep.fields import configuration, varied_fields
from alewm.experiments.sweep.grid import Sweep
from alewm.experiments.sweep.outcome import SweepOutcome, conclude
from alewm.experiments.sweep.trial import make_trials, progress_of
from alewm.training.data import TrainingData


def run_sweep(
    sweep: Sweep,
    library: Library,
    make_executor: Callable[[], Executor],
    settings: EvaluationSettings | None,
    out: Path,
    *,
    retries: int,
    num_ranks: int = 1,
) -> SweepOutcome:
    """The outcome once every trial has finished, or failed one time more than `retries`.

    Trials are found in `library` by their configuration: finished ones are not repeated, others continue. The executor
    is made only if there is something to do, and closed however this ends.
    """
    library.check_data(set(sweep.tasks))
    trials = make_trials(sweep.runs, settings, num_ranks=num_ranks)
    missing = [trial for trial in trials if not trial.is_done(library)]
    if not missing:
        return conclude(sweep, trials, library, settings, {})
    num_windows = _check_data(sweep, library)
    logs, fields = out / "logs", varied_fields(sweep.runs)
    with closing(make_executor()) as executor:
        num_threads = max(1, executor.num_threads // num_ranks)
        trials = make_trials(sweep.runs, settings, num_ranks=num_ranks, num_threads=num_threads)
        left = {trial.run.key for trial in missing}
        jobs = {t.run.name: make_job(t.run.name, t.works, library, executor, logs) for t in trials if t.run.key in left}
        rows = {}
        for trial in trials:
            run, folder = trial.run, library.folder(trial.run)
            label = " ".join(filter(None, (run.preset, configuration(run, fields), f"seed={run.seed}")))
            row = Row(label, folder, run.config.training.total_steps(num_windows[run.task] // _batch(run)))
            if run.name in jobs:
                row.attempt = jobs[run.name].attempt
            else:
                row.state, row.progressed = "finished", progress_of(folder)
            rows[run.name] = row
        with Board(rows, logs) as board:
            failures = finish_all(list(jobs.values()), executor, board, retries=retries)
    return conclude(sweep, trials, library, settings, failures)


def folder_name(sweep: Sweep) -> str:
    """A name for the sweep's own files that another grid does not have."""
    keys = "".join(sorted(run.key for run in sweep.runs))
    return f"{sweep.name[:60]}-{hashlib.sha256(keys.encode()).hexdigest()[:8]}"


def _check_data(sweep: Sweep, library: Library) -> dict[str, int]:
    """Training windows by task; a file that fits no trial is refused before any begins."""
    first = {run.task: run for run in reversed(sweep.runs)}
    counts = {}
    for task, run in first.items():
        data = TrainingData.open(library.data_path(task), run.config)
        counts[task] = data.num_windows("train")
    return counts


def _batch(run: Run) -> int:
    return run.config.training.batch_size
