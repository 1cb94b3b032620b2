"""Running a sweep: an executor does what is missing; tables sort trials and configurations, and one is selected."""

import hashlib
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from alewm.evaluation.settings import EvaluationSettings
from alewm.files import write_json, write_text
from alewm.progress import Progress
from alewm.runs.folder import RunFolder, provenance
from alewm.sweeps.grid import Grid, Group, Runs, configuration, short_names, shown_value, varied_fields
from alewm.sweeps.jobs import Executor, finish_all, make_job
from alewm.sweeps.library import EvaluationWork, Library, TrainingRun, TrainingWork, Work, over_seeds
from alewm.tables import Row, Table
from alewm.training.data import TrainingData


@dataclass(frozen=True)
class SweepOutcome:
    """The tables of a sweep, and which configurations were selected."""

    trials: Table
    configurations: Table
    findings: tuple[str, ...]
    failures: Mapping[str, str]
    """Why trials failed, by name."""

    def markdown(self) -> str:
        failed = [f"- {name} failed: {reason}" for name, reason in self.failures.items()]
        found = [f"- {finding}" for finding in self.findings]
        return "\n".join([self.configurations.markdown(), *found, *failed, "", self.trials.markdown()])

    def write(self, out: Path, sweep: Grid, library: Library) -> Path:
        """Writes sweep.md, trials.csv, configurations.csv and sweep.json below `out`; the path of the first."""
        write_text(out / "trials.csv", self.trials.csv())
        write_text(out / "configurations.csv", self.configurations.csv())
        description = {
            "sweep": sweep.name,
            "runs": {run.name: str(library.folder(run)) for run in sweep.runs},
            "findings": list(self.findings),
            "failures": dict(self.failures),
            "made_with": provenance(),
        }
        write_json(out / "sweep.json", description)
        write_text(out / "sweep.md", self.markdown())
        return out / "sweep.md"


def trial_works(run: TrainingRun, settings: EvaluationSettings | None, num_threads: int = 0) -> tuple[Work, ...]:
    """Training, then the evaluation if there is to be one, on validation pairs and no others."""
    assert settings is None or settings.split == "validation", "a sweep selects, so it looks at validation pairs only"
    return (TrainingWork(run, num_threads), *([EvaluationWork(run, settings)] if settings is not None else []))


def conclude(
    sweep: Grid, library: Library, settings: EvaluationSettings | None, failures: Mapping[str, str]
) -> SweepOutcome:
    """Tables of trials that have ended; failed trials come last and are never selected."""
    reader = _Reader(sweep, library, settings)
    names = list(reader.names.values())
    by_trial: list[Row] = []
    by_configuration: list[Row] = []
    findings = []
    for group in sweep.groups:
        by_trial += [reader.trial_row(group, run) for run in sorted(group.runs, key=reader.run_order)]
        chosen = reader.selected(group)
        for runs in sorted(group.configurations, key=reader.configuration_order):
            by_configuration.append(reader.configuration_row(group, runs, is_selected=runs is chosen))
        findings.append(reader.finding(group, chosen))
    success = "validation success (%)"
    measured = [success, "mean capacity", "validation loss"]
    caption = "Sorted by success on validation pairs, ties by capacity, then by λ. Test pairs were not looked at."
    head = ["group", *names, "seed", *measured, "state", "run"]
    per_seed = f"{caption} One row per trial."
    over_seeds = f"{caption} Mean ± SEM over seeds; selected by the number of pairs reached over all seeds."
    return SweepOutcome(
        Table.of("trials", per_seed, head, by_trial),
        Table.of("configurations", over_seeds, ["group", *names, *measured, "selected"], by_configuration),
        tuple(findings),
        failures,
    )


class _Reader:
    """Reads what run folders say about the trials of one sweep."""

    def __init__(self, sweep: Grid, library: Library, settings: EvaluationSettings | None) -> None:
        self.library, self.settings = library, settings
        self.fields = varied_fields(sweep.runs)
        self.names = short_names(self.fields)
        self.done = {run.key for run in sweep.runs if _is_done(run, settings, library)}

    def is_complete(self, runs: Runs) -> bool:
        """Whether all its seeds have finished."""
        return all(run.key in self.done for run in runs)

    def selected(self, group: Group) -> Runs | None:
        """The configuration selected on validation pairs; None without evaluations or finished configurations."""
        complete = [runs for runs in group.configurations if self.is_complete(runs)]
        return (
            select_configuration(complete, self.library, self.settings)
            if complete and self.settings is not None
            else None
        )

    def run_order(self, run: TrainingRun) -> tuple[bool, float, float, float]:
        """Finished ones first, the most successful of them first."""
        if run.key not in self.done:
            return True, 0.0, 0.0, 0.0
        if self.settings is None:
            return False, self._loss(run), 0.0, 0.0
        found = EvaluationWork(run, self.settings).found(self.library)
        return False, -found["success_rate"], found["mean_capacity"], run.config.objective.regularizer_weight

    def configuration_order(self, runs: Runs) -> tuple[bool, float, float, float]:
        """As for trials, by means over seeds."""
        if not self.is_complete(runs):
            return True, 0.0, 0.0, 0.0
        _, *columns = zip(*map(self.run_order, runs), strict=True)
        # Rounded, so that equal numbers of successes tie as they do in selection.
        success, capacity, weight = (round(fmean(column), 9) for column in columns)
        return False, success, capacity, weight

    def trial_row(self, group: Group, run: TrainingRun) -> Row:
        is_done = run.key in self.done
        state = "finished" if is_done else "failed"
        values = [shown_value(run, field) for field in self.fields]
        measured = self._measured((run,)) if is_done else ["", "", ""]
        return [group.name, *values, str(run.seed), *measured, state, str(self.library.folder(run))]

    def configuration_row(self, group: Group, runs: Runs, *, is_selected: bool) -> Row:
        values = [shown_value(runs[0], field) for field in self.fields]
        measured = self._measured(runs) if self.is_complete(runs) else ["incomplete", "", ""]
        return [group.name, *values, *measured, "selected" if is_selected else ""]

    def finding(self, group: Group, chosen: Runs | None) -> str:
        """A sentence that names the selected configuration."""
        num_complete = sum(map(self.is_complete, group.configurations))
        counted = f"{num_complete} of {len(group.configurations)} configurations are complete"
        if chosen is None:
            return f"{group.name}: nothing is selected; {counted}."
        what = configuration(chosen[0], self.fields) or "the only configuration"
        rate = "" if self.settings is None else over_seeds(chosen, self.settings, self.library).percent()
        folders = shlex.join(str(self.library.folder(run)) for run in chosen)
        return (
            f"{group.name}: selected {what} ({rate} % of validation pairs; {counted}). Test pairs, once: "
            f"`alewm evaluate {folders}`"
        )

    def _measured(self, runs: Sequence[TrainingRun]) -> list[str]:
        if self.settings is None:
            return ["", "", self._mean_loss(runs)]
        success = over_seeds(runs, self.settings, self.library)
        capacity = over_seeds(runs, self.settings, self.library, "mean_capacity")
        return [success.percent(), capacity.shown(), self._mean_loss(runs)]

    def _mean_loss(self, runs: Sequence[TrainingRun]) -> str:
        return f"{sum(map(self._loss, runs)) / len(runs):.4f}"

    def _loss(self, run: TrainingRun) -> float:
        training = RunFolder(self.library.folder(run)).result()["training"]
        # Files with very few episodes have no validation windows.
        return float(training.get("validation/loss", "nan"))


def select_configuration(configurations: Sequence[Runs], library: Library, settings: EvaluationSettings) -> Runs:
    """The configuration that succeeds most often; ties go to the smaller capacity or width, then to the smaller λ.

    Successes are counted, not averaged: every configuration meets the same pairs with as many seeds, and counts tie
    exactly where means would differ by rounding.
    """
    assert settings.split == "validation", "selection looks at validation pairs only"
    assert len({len(runs) for runs in configurations}) == 1, "configurations have different numbers of seeds"
    if len(configurations) == 1:
        return configurations[0]

    def preference(runs: Runs) -> tuple[int, float, float]:
        found = [EvaluationWork(run, settings).found(library) for run in runs]
        successes = sum(round(each["success_rate"] * each["episodes"]) for each in found)
        capacity = sum(each["mean_capacity"] for each in found) / len(found)
        return -successes, capacity, runs[0].config.objective.regularizer_weight

    return min(configurations, key=preference)


def run_sweep(
    sweep: Grid,
    library: Library,
    make_executor: Callable[[], Executor],
    settings: EvaluationSettings | None,
    out: Path,
    *,
    retries: int,
) -> SweepOutcome:
    """Run all missing trials, each retried up to `retries` times, and return the outcome.

    Finished trials in `library` are reused, unfinished ones continue. The executor is created only if something is
    missing, and is always closed.
    """
    library.check_data(set(sweep.tasks))
    missing = [run for run in sweep.runs if not _is_done(run, settings, library)]
    if not missing:
        return conclude(sweep, library, settings, {})
    for task in sweep.tasks:  # a file that does not fit is refused before any trial begins
        TrainingData.open(library.data_path(task), next(run.config for run in sweep.runs if run.task == task))
    logs = out / "logs"
    # Only results go to stdout; what libraries print goes to stderr.
    with redirect_stdout(sys.stderr), closing(make_executor()) as executor:
        jobs = [
            make_job(run.name, trial_works(run, settings, executor.num_threads), library, executor, logs)
            for run in missing
        ]
        title, num_done = f"sweep (logs in {logs})", len(sweep.runs) - len(missing)
        with Progress(title, len(sweep.runs), "trials", done=num_done) as bar:
            failures = finish_all(jobs, executor, bar, retries=retries)
    return conclude(sweep, library, settings, failures)


def _is_done(run: TrainingRun, settings: EvaluationSettings | None, library: Library) -> bool:
    return all(work.is_done(library) for work in trial_works(run, settings))


def folder_name(sweep: Grid) -> str:
    """A name for the sweep's own files that another grid does not have."""
    keys = "".join(sorted(run.key for run in sweep.runs))
    return f"{sweep.name[:60]}-{hashlib.sha256(keys.encode()).hexdigest()[:8]}"
