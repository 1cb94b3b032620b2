"""In which fields the trials of a sweep differ, and how tables call them.

Which trials a sweep has: the paper's grids, or one's own, over presets and seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from alewm.config import changed_fields, overridden, to_dict
from alewm.errors import InputError, unknown_name
from alewm.sweeps.choice import DEGREE, GRIDS, MULTIPLIER, TASK_TITLES, WEIGHT, Choice
from alewm.sweeps.results import Candidate, unique
from alewm.sweeps.run import Run
from alewm.sweeps.scale import make_scale
from alewm.training.config import check_trainable
from alewm.training.presets import CAPACITIES, LEWM_WEIGHT, preset

SEED = "training.seed"


def varied_fields(runs: Sequence[Run]) -> tuple[str, ...]:
    """The dotted paths of all fields in which any two of `runs` differ, seeds apart."""
    found: dict[str, None] = {}
    for run in runs[1:]:
        found |= dict.fromkeys(changed_fields(run.config, runs[0].config))
    if "model.latent_dim" in found:
        found.pop("model.capacities", None)  # LeWM's only capacity is its width
    return tuple(field for field in sorted(found) if field != SEED)


def shown_value(run: Run, field: str) -> str:
    """What `run` has in a field."""
    value: Any = to_dict(run.config)
    for name in field.split("."):
        value = value[name]
    return f"{value:g}" if isinstance(value, float) else str(value)


def short_names(fields: Sequence[str]) -> dict[str, str]:
    """The last word of each dotted path, or the whole of it where two would be alike."""
    last = [field.rpartition(".")[2] for field in fields]
    return {field: word if last.count(word) == 1 else field for field, word in zip(fields, last, strict=True)}


def configuration(run: Run, fields: Sequence[str]) -> str:
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
"""What the paper searches grids for."""

Values = Mapping[str, Sequence[Any]]
"""Values to try, by the dotted path of their field."""


@dataclass(frozen=True)
class Block:
    """The candidates of one backbone on one task."""

    task: str
    width: int
    lewm: tuple[Candidate, ...]
    alewm: tuple[Candidate, ...]

    @property
    def full_width(self) -> tuple[Candidate, ...]:
        """LeWM at d_max, once per weight."""
        return tuple(each for each in self.lewm if each.runs[0].config.model.latent_dim == self.width)


def candidates_of(choice: Choice, task: str, width: int) -> Block:
    """LeWM at every width of the grid, and ALeWM as the paper selected it; with a search, at every grid point."""
    weights = GRIDS[WEIGHT] if choice.searches else (LEWM_WEIGHT,)
    lewm = tuple(
        Candidate(choice.over_seeds(choice.lewm, task, width, latent_dim, weight=weight))
        for latent_dim, weight in product(choice.widths_of_lewm(width), weights)
    )
    changes = choice.variations(WEIGHT, MULTIPLIER, DEGREE) if choice.searches else [{}]
    alewm = tuple(Candidate(choice.over_seeds(choice.alewm, task, width, changes=each)) for each in changes)
    return Block(task, width, lewm, alewm)


@dataclass(frozen=True)
class Group:
    """Configurations that compete: one of them is selected."""

    name: str
    candidates: tuple[Candidate, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        """Its trials."""
        return tuple(run for candidate in self.candidates for run in candidate.runs)


@dataclass(frozen=True)
class Sweep:
    """Groups of trials."""

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
    def runs(self) -> tuple[Run, ...]:
        """All trials; a configuration that two groups share is trained once."""
        return unique([run for group in self.groups for run in group.runs])

    @property
    def tasks(self) -> tuple[str, ...]:
        """Whose data is needed."""
        return tuple(dict.fromkeys(run.task for run in self.runs))


def paper_sweep(seeds: Sequence[int], only: Sequence[str] = (), values: Values | None = None) -> Sweep:
    """The paper's search: per task and width, LeWM over widths and λ, ALeWM over λ, s_q and α.

    `only` names tasks, widths and methods; `values`, one per field, are the same for all trials.
    """
    fixed = _only_values(values or {})
    for name in only:
        if name not in {*TASK_TITLES, *map(str, CAPACITIES), *METHODS}:
            raise unknown_name("task, width or method", name, [*TASK_TITLES, *map(str, CAPACITIES), *METHODS])
    methods = [name for name in METHODS if name in only] or METHODS
    others = tuple(name for name in only if name not in METHODS)
    choice = Choice(make_scale("paper"), tuple(seeds), others, searches=True)
    groups = []
    for width, task in product(choice.widths(*CAPACITIES), choice.tasks(*TASK_TITLES)):
        block = candidates_of(choice, task, width)
        for method in methods:
            candidates = block.alewm if method == "alewm" else block.lewm
            kept = {tuple(run.key for run in each.runs): each for each in (_changed(c, fixed) for c in candidates)}
            groups.append(Group(f"{task}-{width} {method}", tuple(kept.values())))
    return Sweep("paper", tuple(groups))


def preset_sweep(presets: Sequence[str], seeds: Sequence[int], values: Values | None = None) -> Sweep:
    """A grid around each of `presets`.

    Fields for which `values` has several make the grid; where none has, the grid is the paper's for the preset's
    method, less the fields that `values` fixes.
    """
    groups = [Group(name, _candidates(name, tuple(seeds), values or {})) for name in dict.fromkeys(presets)]
    return Sweep("-".join(group.name for group in groups), tuple(groups))


def _candidates(name: str, seeds: tuple[int, ...], values: Values) -> tuple[Candidate, ...]:
    base, axes = preset(name), dict(values)
    if all(len(each) == 1 for each in values.values()):
        axes = {field: GRIDS[field] for field in SEARCHED[base.objective.method]} | axes
    candidates = {}
    for point in product(*axes.values()):
        config = overridden(base, dict(zip(axes, point, strict=True)))
        runs = tuple(Run(name, replace(config, training=replace(config.training, seed=seed))) for seed in seeds)
        candidates[runs[0].key] = Candidate(runs)
    return tuple(candidates.values())


def _changed(candidate: Candidate, changes: Mapping[str, Any]) -> Candidate:
    return Candidate(tuple(run.with_fields(changes) for run in candidate.runs)) if changes else candidate


def _only_values(values: Values) -> dict[str, Any]:
    for field, several in values.items():
        if len(several) > 1:
            raise InputError(
                f"--set {field} has {len(several)} values, but without a preset the grids are the paper's. Name a "
                f"preset to search around: alewm sweep PRESET --set {field}=..."
            )
    return {field: one for field, (one,) in values.items()}
