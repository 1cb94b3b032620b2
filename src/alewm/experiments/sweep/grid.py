"""Which trials a sweep has: the paper's grids, or one's own, over presets and seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from alewm.config import overridden
from alewm.errors import InputError, unknown_name
from alewm.experiments.framework.choice import DEGREE, GRIDS, MULTIPLIER, TASK_TITLES, WEIGHT, Choice
from alewm.experiments.framework.experiment import unique
from alewm.experiments.framework.run import Run
from alewm.experiments.framework.scale import make_scale
from alewm.experiments.framework.selection import Candidate
from alewm.experiments.main_table import candidates_of
from alewm.experiments.presets import CAPACITIES, preset
from alewm.training.trainable import check_trainable

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
