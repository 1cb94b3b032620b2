"""Experiments by name: run in this process or by an executor, or planned with an estimate of hours.

The estimate rests on measured figures: models of the paper's size on one NVIDIA H200, tiny ones on one AMD EPYC core.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from alewm.data.collect import collect_command
from alewm.data.splits import NUM_TEST, NUM_VALIDATION
from alewm.data.store import EpisodeStore
from alewm.envs.collect_task import collect_task
from alewm.envs.registry import get_task
from alewm.errors import InputError, unknown_name
from alewm.files import read_json
from alewm.model.world_model import WorldModelConfig
from alewm.planning.search import CEMConfig
from alewm.progress import Progress
from alewm.runs.folder import RunFolder
from alewm.sweeps.executors import LocalProcesses
from alewm.sweeps.jobs import Executor, JobResources, finish_all, make_job, missing_works, planned_work
from alewm.sweeps.library import EvaluationWork, Library, TrainingRun, TrainingWork, Work
from alewm.training.config import RunConfig
from alewm.training.presets import preset
from alewm_lab import oscillator
from alewm_lab.experiments import ablations, capacity_dynamics, comparisons, episodes, main_table, measured_models
from alewm_lab.experiments.experiment import Experiment, Outcome, Recipe, Results
from alewm_lab.experiments.request import TASK_TITLES, TINY_PRESET, OwnData


def record_own_data(library: Library, own: OwnData, data_sets: set[str]) -> None:
    """Record Two-Room episodes of small images for each of `data_sets` that `library` lacks.

    A second data set, `two-room-2`, has other episodes.
    """
    size = preset(TINY_PRESET).model.encoder.image_size
    for name in sorted(data_sets):
        number = int(name.removeprefix("two-room-")) - 1 if name != "two-room" else 0
        path, seed = library.data_path(name), own.seed + number
        collect_task("two-room", path, num_episodes=own.num_episodes, seed=seed, image_size=size, jobs=1)


def data_notes(library: Library, data_sets: set[str]) -> str:
    """What every caption must say about data that was recorded here instead of where published numbers are from."""
    notes = []
    for name in sorted(data_sets):
        with EpisodeStore.open(library.data_path(name)) as store:
            command = collect_command(store.attributes, store.path.name)
            task = store.attributes["task"] if command else None  # a data set may be called otherwise
        if task is not None and (note := get_task(task).note_on(command)):
            notes.append(f"{TASK_TITLES[task]}: {note}")
    return " ".join(dict.fromkeys(notes))


LOGS = Path("experiments") / "logs"
"""The folder among runs for what other processes print."""


def execute(
    experiment: Experiment, library: Library, *, jobs: int, device: torch.device, executor: Executor | None = None
) -> Outcome:
    """Do what is missing and return the tables and figures; finished work is not repeated.

    Without an `executor`, `jobs` processes of this machine do it; one job is this process.
    """
    if executor is None and jobs > 1:
        executor = LocalProcesses.sharing(jobs, device, JobResources())
    with nullcontext() if executor is None else closing(executor):
        library.check_data(experiment.data_sets)
        results = Results(library)
        _perform(chains(experiment, results), "runs", library, device, executor)
        if experiment.tests is not None:
            tests = [[work] for work in experiment.tests(results)]
            _perform(tests, "planning to test pairs", library, device, executor)
    return experiment.outcome(results).noting(data_notes(library, experiment.data_sets))


def chains(experiment: Experiment, results: Results) -> list[list[Work]]:
    """Every run's training, followed by the work on that run that is known already.

    So each model is evaluated before the next one is trained, and an interrupted experiment has results.
    """
    by_run: dict[str, list[Work]] = {run.key: [TrainingWork(run)] for run in experiment.runs}
    for work in experiment.known_works(results)[0]:
        by_run[work.run.key].append(work)
    return list(by_run.values())


def _perform(
    asked: Sequence[Sequence[Work]], title: str, library: Library, device: torch.device, executor: Executor | None
) -> None:
    """Do what is missing of each chain, in order; an executor runs chains in parallel."""
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
        failures = finish_all(jobs, executor, bar)
    if failures:
        lines = "\n".join(f"  {name}: {failure}" for name, failure in failures.items())
        raise InputError(f"{len(failures)} of {len(jobs)} units of work failed; {logs} has what they printed:\n{lines}")


_IN_ORDER = (
    main_table.RECIPE,
    comparisons.NESTED_DROPOUT,
    comparisons.PREFIX_SWEEP,
    comparisons.SIGREG_ABLATION,
    comparisons.GOAL_COST,
    capacity_dynamics.CAPACITY_DYNAMICS,
    capacity_dynamics.TWO_DATA_SETS,
    episodes.REACHER_CAPACITY,
    episodes.ROLLOUTS,
    measured_models.THEORY,
    ablations.RECIPE,
    comparisons.SELECTION_RULES,
    measured_models.STATE_PROBES,
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _IN_ORDER}
"""In the order of the paper; those beyond it last."""


def recipe(name: str) -> Recipe:
    """The experiment called `name`; an unknown name is refused, proposing the nearest."""
    if name not in RECIPES:
        raise unknown_name("experiment", name, [*RECIPES, oscillator.NAME])
    return RECIPES[name]


MEASURED_PRESET = "two-room-192"
"""The configuration whose evaluations were timed."""

UPDATE_SECONDS = {MEASURED_PRESET: 128 / 4935, "two-room-384": 0.06961, TINY_PRESET: 0.05624}
"""An update of a preset's batch with each encoder: ViT-Tiny/14 while training from the store, `alewm train
two-room-192 --steps 4500`; ViT-Small/14, its blocks plain, with data on the device, `alewm-lab bench scaling`; the tiny
one in a whole training beside another, `alewm train two-room-tiny --device cpu --threads 1 --seed 3074`."""

GPU, CORE = "an NVIDIA H200", "an AMD EPYC core"

EVALUATION_SECONDS = 2.43
"""All 200 Two-Room pairs, environment and floors included, kernels compiled before: `alewm-lab bench evaluate`."""

TINY_EVALUATION_SECONDS = 29.2
"""100 Two-Room pairs with the tiny model, ten iterations, on that core: `alewm evaluate --episodes 100 --iterations
10`."""

DRAWING_SECONDS = {"push-t": 2 / 2632.2, "reacher": 2 / 68.62, "cube": 2 / 6.404}
"""A frame of the tasks that the figure above does not hold, stepped and drawn by one process of two on two AMD EPYC
cores, MuJoCo in software: `alewm-lab bench collect --task NAME --jobs 2`.
One process of a GPU machine was not measured."""

FRAMES_PER_PAIR = 3
"""Start, goal, and the look before the second and last plan."""


@dataclass(frozen=True)
class Cost:
    """An estimate that says what it rests on."""

    seconds: float
    basis: str


def update_cost(config: RunConfig, own_seconds: float | None = None) -> Cost:
    """One update with this width of encoder, as measured or where one of `MEASURED_PRESET` takes `own_seconds`.

    For tiny models `own_seconds` is that of the tiny preset. Whatever else differs is taken to cost the same.
    """
    width = config.model.encoder.hidden_dim
    name = next(name for name in UPDATE_SECONDS if preset(name).model.encoder.hidden_dim == width)
    given_of = name if name == TINY_PRESET else MEASURED_PRESET
    if own_seconds is None:
        seconds, basis = UPDATE_SECONDS[name], f"measured on {CORE if name == TINY_PRESET else GPU}"
    else:
        ratio = UPDATE_SECONDS[name] / UPDATE_SECONDS[given_of]
        seconds = own_seconds * ratio
        basis = "as given" if name == given_of else f"{ratio:.2f} x the {1000 * own_seconds:.1f} ms given, as on {GPU}"
    return Cost(seconds, f"encoder width {width}: {1000 * seconds:.1f} ms per update, {basis}")


def evaluation_cost(work: EvaluationWork) -> Cost:
    """The pairs of a split: search, scaled by the predictor's multiply-adds and the plans made, and drawing."""
    model, settings = work.run.config.model, work.settings
    num_pairs = settings.num_episodes or (NUM_VALIDATION if settings.split == "validation" else NUM_TEST)
    plans = len(model.support) if settings.planning.capacity == "best-of" else 1
    cem, usual = settings.planning.cem, CEMConfig()
    search = plans * num_pairs * cem.num_candidates * cem.num_iterations / (usual.num_candidates * usual.num_iterations)
    if model.encoder.hidden_dim == preset(TINY_PRESET).model.encoder.hidden_dim:
        planning = TINY_EVALUATION_SECONDS * search * usual.num_iterations / (100 * 10)
        basis = f"{TINY_EVALUATION_SECONDS} s per 100 Two-Room pairs with 10 iterations, measured on {CORE}"
    else:
        ratio = _position_multiply_adds(model) / _position_multiply_adds(preset(MEASURED_PRESET).model)
        planning = EVALUATION_SECONDS * ratio * search / NUM_TEST
        basis = f"{EVALUATION_SECONDS} s per 200 Two-Room pairs, measured on {GPU}"
    frames = FRAMES_PER_PAIR * num_pairs + work.num_animations * (settings.budget + 2)
    task = work.run.config.data_sets.get(settings.data_set, work.run.task)
    seconds = planning + frames * DRAWING_SECONDS.get(task, 0.0)
    return Cost(seconds, f"evaluation: {basis}; frames of other tasks as measured on {CORE}")


def _position_multiply_adds(model: WorldModelConfig) -> int:
    """Attention's maps, MLP and modulation of every block, and the projector of a latent as wide as the predictor."""
    W, shape = model.encoder.hidden_dim, model.predictor
    heads = shape.num_heads * shape.head_dim
    block = 4 * W * heads + 2 * W * shape.mlp_dim + 6 * W * W
    return shape.num_blocks * block + 2 * W * model.projector_dim


NOT_COUNTED = "not counted: validation windows, compiling, physics of simulated tasks, measurements on models"


@dataclass(frozen=True)
class Hours:
    """An estimate, and what it rests on."""

    training: float
    evaluation: float
    basis: tuple[str, ...] = ()
    """A line per kind of run."""

    def lines(self) -> list[str]:
        """The estimate in words."""
        total = f"about {self.training:.1f} hours of training and {self.evaluation:.1f} of evaluation, one by one"
        return [total, *(f"  {line}" for line in self.basis)]


NUM_WINDOWS = {"two-room": 730_809, "push-t": 1_981_721, "reacher": 1_820_000, "cube": 1_820_000}
"""Windows in the published file of each task."""


def num_updates(run: TrainingRun) -> int:
    """Updates in all, on files of the published size."""
    num_windows = sum(NUM_WINDOWS[task] for task in run.config.data_sets.values())
    return run.config.training.total_steps(num_windows // run.config.training.batch_size)


def seconds_per_update(library: Library) -> dict[int, float]:
    """As measured by finished runs, by the width of the encoder."""
    found: dict[int, float] = {}
    for folder in library.known_folders():
        training = RunFolder(folder).result().get("training")
        if training and "seconds" in training:  # imported weights were trained elsewhere
            config: dict[str, Any] = read_json(folder / "config.json")
            found[config["model"]["encoder"]["hidden_dim"]] = training["seconds"] / training["step"]
    return found


def hours_of(
    runs: Sequence[TrainingRun], evaluations: Sequence[Cost], library: Library, updates_per_second: float | None = None
) -> Hours:
    """Hours of training those of `runs` that are missing, and of `evaluations`.

    Finished runs below `library` tell what an update takes; where there is none with the same encoder,
    `updates_per_second` does (of `MEASURED_PRESET`, or of the tiny preset for tiny models), and without it the figures
    that were measured.
    """
    found = seconds_per_update(library)
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
        training += num_updates(run) * cost.seconds
    basis |= dict.fromkeys(cost.basis for cost in evaluations)
    evaluation = sum((cost.seconds for cost in evaluations), 0.0)
    return Hours(training / 3600, evaluation / 3600, (*basis, NOT_COUNTED))


def planned(experiment: Experiment, library: Library, updates_per_second: float | None = None) -> Iterator[str]:
    """Lines for a terminal: every command, the count of runs, and an estimate of hours."""
    works, is_all = experiment.known_works(Results(library))
    hours = estimated_hours(experiment, library, updates_per_second)
    trainings = [TrainingWork(run) for run in experiment.runs]
    return planned_work(trainings, works, library, hours.lines(), 0 if is_all else experiment.num_tests)


def estimated_hours(experiment: Experiment, library: Library, updates_per_second: float | None = None) -> Hours:
    """Hours of what is missing, one thing after the other."""
    works, is_all = experiment.known_works(Results(library))
    costs = [evaluation_cost(work) for work in missing_works(works, library) if isinstance(work, EvaluationWork)]
    if not is_all:
        # Validation has not selected yet: as many tests as there may be, of the mean cost of all runs.
        test = experiment.request.scale.evaluation()
        every = [evaluation_cost(EvaluationWork(run, test)) for run in experiment.runs]
        costs += [Cost(experiment.num_tests * each.seconds / len(every), each.basis) for each in every]
    return hours_of(experiment.runs, costs, library, updates_per_second)
