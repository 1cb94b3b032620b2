"""The trials of a sweep: the paper's grids or one's own, over presets and seeds, and the fields that differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from alewm.config import changed_fields, overridden, to_dict
from alewm.errors import InputError, unknown_name
from alewm.sweeps.library import TrainingRun, unique
from alewm.training.config import RunConfig, check_trainable
from alewm.training.presets import ACTION_DIMS, CAPACITIES, as_lewm, preset

SEED = "training.seed"
TASKS = tuple(ACTION_DIMS)
"""In the paper's order."""

WEIGHT, MULTIPLIER, DEGREE = "objective.regularizer_weight", "training.optim.selector_multiplier", "model.prior_degree"
GRIDS = {WEIGHT: (0.09, 0.15, 0.2, 0.3), MULTIPLIER: (1.0, 2.0, 3.0), DEGREE: (-1.0, -0.5, 0.0, 1.0, 2.0, 3.0)}
"""The paper's grids of λ, s_q and α."""

Runs = tuple[TrainingRun, ...]
"""One configuration, trained with several seeds."""


def varied_fields(runs: Sequence[TrainingRun]) -> tuple[str, ...]:
    """The dotted paths of all fields in which any two of `runs` differ, seeds apart."""
    found: dict[str, None] = {}
    for run in runs[1:]:
        found |= dict.fromkeys(changed_fields(run.config, runs[0].config))
    if "model.latent_dim" in found:
        found.pop("model.capacities", None)  # LeWM's only capacity is its width
    return tuple(field for field in sorted(found) if field != SEED)


def shown_value(run: TrainingRun, field: str) -> str:
    """What `run` has in a field."""
    value: Any = to_dict(run.config)
    for name in field.split("."):
        value = value[name]
    return f"{value:g}" if isinstance(value, float) else str(value)


def short_names(fields: Sequence[str]) -> dict[str, str]:
    """The last word of each dotted path, or the whole of it where two would be alike."""
    last = [field.rpartition(".")[2] for field in fields]
    return {field: word if last.count(word) == 1 else field for field, word in zip(fields, last, strict=True)}


def configuration(run: TrainingRun, fields: Sequence[str]) -> str:
    """`name=value` for each of `fields`."""
    return " ".join(f"{name}={shown_value(run, field)}" for field, name in short_names(fields).items())


SEARCHED = {
    "alewm": (WEIGHT, MULTIPLIER, DEGREE),
    "alewm-sigreg": (WEIGHT, MULTIPLIER, DEGREE),
    "nested-dropout": (WEIGHT, DEGREE),
    "lewm": (WEIGHT,),
}
"""Which of the paper's grids each method has; LeWM's width is one of its presets."""

METHODS = ("lewm", "alewm")
"""Methods for which the paper searches grids."""

Values = Mapping[str, Sequence[Any]]
"""Values to try, by the dotted path of their field."""


@dataclass(frozen=True)
class Group:
    """Configurations that compete: one of them is selected."""

    name: str
    configurations: tuple[Runs, ...]

    @property
    def runs(self) -> tuple[TrainingRun, ...]:
        return tuple(run for runs in self.configurations for run in runs)


@dataclass(frozen=True)
class Grid:
    """All trials of a sweep, in groups."""

    name: str
    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        for run in self.runs:
            check_trainable(run.config)
        mixed = next((run for run in self.runs if len(run.data_sets) > 1), None)
        if mixed is not None:
            raise InputError(
                f"A sweep selects on the validation pairs of one data set, but {mixed.preset} would learn from "
                f"{' and '.join(mixed.data_sets)}. Sweep them one by one, or train with `alewm train`."
            )

    @property
    def runs(self) -> tuple[TrainingRun, ...]:
        """All trials; a configuration that two groups share is trained once."""
        return unique([run for group in self.groups for run in group.runs])

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.task for run in self.runs))


def paper_sweep(seeds: Sequence[int], only: Sequence[str] = (), values: Values | None = None) -> Grid:
    """The paper's search: per task and width, LeWM over widths and λ, ALeWM over λ, s_q and α.

    `only` names tasks, widths and methods; `values`, one per field, are the same for all trials.
    """
    fixed = _only_values(values or {})
    known = [*TASKS, *map(str, CAPACITIES), *METHODS]
    for name in only:
        if name not in known:
            raise unknown_name("task, width or method", name, known)
    asked = [
        [name for name in kind if name in only] or list(kind) for kind in (tuple(map(str, CAPACITIES)), TASKS, METHODS)
    ]
    groups = []
    for width, task, method in product(*asked):
        points = _paper_points(task, int(width), method)
        configurations = [_over_seeds(name, overridden(config, fixed), seeds) for name, config in points]
        groups.append(Group(f"{task}-{width} {method}", _distinct(configurations)))
    return Grid("paper", tuple(groups))


def _paper_points(task: str, width: int, method: str) -> list[tuple[str, RunConfig]]:
    """Preset and configuration of every point of the paper's grid."""
    name = f"{task}-{width}"
    if method == "lewm":
        grid = product(CAPACITIES[width], GRIDS[WEIGHT])
        return [(f"{name}-lewm-{latent_dim}", as_lewm(preset(name), latent_dim, weight)) for latent_dim, weight in grid]
    fields = SEARCHED[method]
    points = product(*(GRIDS[field] for field in fields))
    return [(name, overridden(preset(name), dict(zip(fields, point, strict=True)))) for point in points]


def preset_sweep(presets: Sequence[str], seeds: Sequence[int], values: Values | None = None) -> Grid:
    """A grid around each of `presets`.

    Fields for which `values` has several make the grid; where none has, the grid is the paper's for the preset's
    method, less the fields that `values` fixes.
    """
    groups = [Group(name, _configurations(name, seeds, values or {})) for name in dict.fromkeys(presets)]
    return Grid("-".join(group.name for group in groups), tuple(groups))


def _configurations(name: str, seeds: Sequence[int], values: Values) -> tuple[Runs, ...]:
    base, axes = preset(name), dict(values)
    if all(len(each) == 1 for each in values.values()):
        axes = {field: GRIDS[field] for field in SEARCHED[base.objective.method]} | axes
    points = (dict(zip(axes, point, strict=True)) for point in product(*axes.values()))
    return _distinct([_over_seeds(name, overridden(base, point), seeds) for point in points])


def _over_seeds(name: str, config: RunConfig, seeds: Sequence[int]) -> Runs:
    return tuple(TrainingRun(name, replace(config, training=replace(config.training, seed=seed))) for seed in seeds)


def _distinct(configurations: Sequence[Runs]) -> tuple[Runs, ...]:
    """Remove repeated points: fixing a field that the grid varies makes some equal."""
    return tuple({tuple(run.key for run in runs): runs for runs in configurations}.values())


def _only_values(values: Values) -> dict[str, Any]:
    for field, several in values.items():
        if len(several) > 1:
            raise InputError(
                f"--set {field} has {len(several)} values, but without a preset the grids are the paper's. Name a "
                f"preset to search around: alewm sweep PRESET --set {field}=..."
            )
    return {field: one for field, (one,) in values.items()}
