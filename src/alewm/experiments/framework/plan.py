"""What an experiment would do: every command, the count of runs, and an estimate of hours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from alewm.experiments.framework.cost import Cost, evaluation_cost, update_cost
from alewm.experiments.framework.experiment import Experiment, Stage
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.results import NotThereYetError, Results
from alewm.experiments.framework.run import Run
from alewm.experiments.framework.work import Evaluation, Training, Work

NOT_COUNTED = "not counted: validation windows, compiling, physics of simulated tasks, measurements on models"


@dataclass(frozen=True)
class Hours:
    """An estimate, and what it rests on."""

    training: float
    evaluation: float
    basis: tuple[str, ...] = ()
    """A line per kind of run."""


def planned(experiment: Experiment, library: Library, updates_per_second: float | None = None) -> Iterator[str]:
    """Lines for a terminal; comments start with #, so that the rest can be given to a shell."""
    hours = estimated_hours(experiment, library, updates_per_second)
    return planned_work([Training(run) for run in experiment.runs], experiment.stages, library, hours)


def planned_work(
    trainings: Sequence[Training], stages: Sequence[Stage], library: Library, hours: Hours
) -> Iterator[str]:
    """The same for runs to be trained and what follows."""
    missing = [training for training in trainings if not training.is_done(library)]
    if missing:
        yield f"# training: {len(missing)} of {len(trainings)} runs are missing"
    yield from (training.command(library) for training in missing)
    num_evaluations = 0
    for stage in stages:
        works = _missing_works(stage, library)
        if works is None:
            yield f"# {stage.title}: at most {stage.most}, known once the work above is done"
            num_evaluations += stage.most
            continue
        if works:
            yield f"# {stage.title}: {len(works)}"
        yield from (work.command(library) for work in works)
        num_evaluations += len(works)
    yield (
        f"# {len(trainings)} runs, {len(trainings) - len(missing)} of them finished; "
        f"at most {num_evaluations} evaluations and measurements missing"
    )
    yield f"# about {hours.training:.1f} hours of training and {hours.evaluation:.1f} of evaluation, one by one"
    yield from (f"#   {line}" for line in hours.basis)


def estimated_hours(experiment: Experiment, library: Library, updates_per_second: float | None = None) -> Hours:
    """Hours of what is missing, one thing after the other."""
    costs = [cost for stage in experiment.stages for cost in _stage_costs(stage, experiment, library)]
    return hours_of(experiment.runs, costs, library, updates_per_second)


def hours_of(
    runs: Sequence[Run], evaluations: Sequence[Cost], library: Library, updates_per_second: float | None = None
) -> Hours:
    """Hours of training those of `runs` that are missing, and of `evaluations`.

    Finished runs below `library` tell what an update takes; where there is none with the same encoder,
    `updates_per_second` does (of `MEASURED_PRESET`, or of the tiny preset for tiny models), and without it the figures
    that were measured.
    """
    found = library.seconds_per_update()
    own_seconds = 1 / updates_per_second if updates_per_second else None
    training = 0.0
    basis: dict[str, None] = {}
    for run in (run for run in runs if not library.is_trained(run)):
        width = run.config.model.encoder.hidden_dim
        cost = update_cost(run.config, own_seconds)
        if width in found:
            label = f"encoder width {width}: {1000 * found[width]:.1f} ms per update, as in {library.root}"
            cost = Cost(found[width], label)
        basis[cost.basis] = None
        training += run.num_updates * cost.seconds
    basis |= dict.fromkeys(cost.basis for cost in evaluations)
    evaluation = sum((cost.seconds for cost in evaluations), 0.0)
    return Hours(training / 3600, evaluation / 3600, (*basis, NOT_COUNTED))


def _missing_works(stage: Stage, library: Library) -> Sequence[Work] | None:
    """What is left of a stage; None while earlier work decides it."""
    try:
        return [work for work in dict.fromkeys(stage.works(Results(library))) if not work.is_done(library)]
    except NotThereYetError:
        return None


def _stage_costs(stage: Stage, experiment: Experiment, library: Library) -> list[Cost]:
    works = _missing_works(stage, library)
    if works is not None:
        return [evaluation_cost(work) for work in works if isinstance(work, Evaluation)]
    # Which runs it will be is not known yet: as many as there may be, of the mean cost of all.
    test = experiment.choice.scale.evaluation()
    every = [evaluation_cost(Evaluation(run, test)) for run in experiment.runs]
    return [Cost(stage.most * each.seconds / len(every), each.basis) for each in every]
