"""Every experiment by name."""

from alewm.errors import unknown_name
from alewm.sweeps.results import Recipe
from alewm_lab import oscillator
from alewm_lab.experiments import (
    ablations,
    capacity_dynamics,
    estimators,
    goal_cost,
    main_table,
    mixed,
    nested_dropout,
    prefix_sweep,
    priors,
    probes,
    reacher_capacity,
    rollouts,
    selection_rules,
    sigreg_ablation,
    surprise,
    theory,
)

_MODULES = (
    main_table,
    nested_dropout,
    prefix_sweep,
    sigreg_ablation,
    goal_cost,
    capacity_dynamics,
    mixed,
    reacher_capacity,
    rollouts,
    theory,
    ablations,
    estimators,
    priors,
    selection_rules,
    probes,
    surprise,
)

RECIPES: dict[str, Recipe] = {module.RECIPE.name: module.RECIPE for module in _MODULES}
"""In the order of the paper; those beyond it last."""


def recipe(name: str) -> Recipe:
    """The experiment called `name`; an unknown name is refused, proposing the nearest."""
    if name not in RECIPES:
        raise unknown_name("experiment", name, [*RECIPES, oscillator.NAME])
    return RECIPES[name]
