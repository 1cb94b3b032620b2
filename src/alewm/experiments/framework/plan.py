"""What an experiment would do: every command, the count of runs, and an estimate of hours."""

from collections.abc import Iterator, Sequence

from alewm.experiments.framework.experiment import Experiment, Stage
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.results import NotThereYetError, Results
from alewm.experiments.framework.run import Run
from alewm.experiments.framework.work import Training


def planned(experiment: Experiment, library: Library, updates_per_second: float) -> Iterator[str]:
    """Lines for a terminal; comments start with #, so that the rest can be given to a shell."""
    return planned_work([Training(run) for run in experiment.runs], experiment.stages, library, updates_per_second)


def planned_work(
    trainings: Sequence[Training], stages: Sequence[Stage], library: Library, updates_per_second: float
) -> Iterator[str]:
    """The same for runs that are trained and what follows."""
    results = Results(library)
    missing = [training for training in trainings if not training.is_done(library)]
    if missing:
        yield f"# training: {len(missing)} of {len(trainings)} runs are missing"
    yield from (training.command(library) for training in missing)
    num_evaluations = 0
    for stage in stages:
        try:
            works = [work for work in dict.fromkeys(stage.works(results)) if not work.is_done(library)]
        except NotThereYetError:
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
    yield _hours([training.run for training in missing], library, updates_per_second)


def _hours(missing: Sequence[Run], library: Library, updates_per_second: float) -> str:
    measured = library.seconds_per_update()
    seconds, sources = 0.0, set()
    for run in missing:
        width = run.config.model.encoder.hidden_dim
        rate = measured.get(width, 1 / updates_per_second)
        source = f"measured in {library.root}" if width in measured else "assumed"
        sources.add(f"encoder width {width}: {1 / rate:.3g} updates per second, {source}")
        seconds += run.num_updates * rate
    because = f" ({'; '.join(sorted(sources))})" if sources else ""
    return f"# about {seconds / 3600:.2f} hours of training{because}; evaluations come on top"
