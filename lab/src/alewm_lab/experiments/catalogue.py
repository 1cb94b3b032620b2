"""Every experiment by name."""

from alewm.errors import unknown_name
from alewm_lab import oscillator
from alewm_lab.experiments import (
    ablations,
    capacity_dynamics,
    estimators,
    main_table,
    planning_rules,
    priors,
    reacher_capacity,
    rival_methods,
    rollouts,
    state_probes,
    surprise,
    theory,
)
from alewm_lab.experiments.experiment import Recipe

_IN_ORDER = (
    main_table.RECIPE,
    rival_methods.NESTED_DROPOUT,
    planning_rules.PREFIX_SWEEP,
    rival_methods.SIGREG_ABLATION,
    planning_rules.GOAL_COST,
    capacity_dynamics.CAPACITY_DYNAMICS,
    capacity_dynamics.TWO_DATA_SETS,
    reacher_capacity.RECIPE,
    rollouts.RECIPE,
    theory.RECIPE,
    ablations.RECIPE,
    estimators.RECIPE,
    priors.RECIPE,
    planning_rules.SELECTION_RULES,
    state_probes.RECIPE,
    surprise.RECIPE,
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _IN_ORDER}
"""In the order of the paper; those beyond it last."""


def recipe(name: str) -> Recipe:
    """The experiment called `name`; an unknown name is refused, proposing the nearest."""
    if name not in RECIPES:
        raise unknown_name("experiment", name, [*RECIPES, oscillator.NAME])
    return RECIPES[name]
