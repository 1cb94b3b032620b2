"""Estimated hours of training and evaluation, from measured figures.

Models of the paper's size were measured on one NVIDIA H200, tiny ones on one AMD EPYC core.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alewm.data.splits import NUM_TEST, NUM_VALIDATION
from alewm.files import read_json
from alewm.model.world_model import WorldModelConfig
from alewm.planning.search import CEMConfig
from alewm.runs.folder import RunFolder
from alewm.sweeps.library import EvaluationWork, Library, TrainingRun
from alewm.training.config import RunConfig
from alewm.training.presets import preset

TINY_PRESET = "two-room-tiny"
"""ALeWM of the scales that need no GPU."""

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
