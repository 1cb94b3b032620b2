"""Every experiment by name."""

from alewm.errors import unknown_name
from alewm.experiments import main_table, prefix_sweep
from alewm.experiments.framework.experiment import Recipe

RECIPES: dict[str, Recipe] = {module.RECIPE.name: module.RECIPE for module in (main_table, prefix_sweep)}
"""In the order of the paper; those beyond it last."""


def recipe(name: str) -> Recipe:
    """The experiment called `name`; an unknown name is refused, proposing the nearest."""
    if name not in RECIPES:
        raise unknown_name("experiment", name, RECIPES)
    return RECIPES[name]
