"""One plan for a group of episodes that share a capacity: the part of planning where all the time goes.

It is a function of tensors whose shapes are fixed by the configuration and the group's size, so a compiled or
captured version can take its place in `Planner`.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from alewm.planning.cem import CEMConfig, CEMResult, solve
from alewm.planning.model_protocol import PlanningModel
from alewm.planning.objective import GoalCost, compared_width, prefix_distance
from alewm.planning.rollout import CONTEXT, sliced_roll_out
from alewm.shapes import Float, Tensor


@dataclass(frozen=True)
class SearchSettings:
    """What all episodes of a group are searched with."""

    capacity: int
    """Coordinates of the latent that rollouts carry (k)."""
    cem: CEMConfig
    """Sizes of the search."""
    goal_cost: GoalCost = "active"
    """Compare the goal on these coordinates, or on all."""
    context: int = CONTEXT
    """Positions the predictor reads."""


@runtime_checkable
class InnerLoop(Protocol):
    """Anything that searches like `plan_group`."""

    def __call__(
        self,
        model: PlanningModel,
        z_now: Tensor,
        z_goal: Tensor,
        noise: Tensor,
        initial_mean: Tensor,
        settings: SearchSettings,
    ) -> CEMResult:
        """The result of the search, per episode."""
        ...


def plan_group(
    model: PlanningModel,
    z_now: Float[Tensor, "B D"],
    z_goal: Float[Tensor, "B D"],
    noise: Float[Tensor, "iterations B S H A"],
    initial_mean: Float[Tensor, "B H A"],
    settings: SearchSettings,
) -> CEMResult:
    """The blocks whose imagined end is nearest to the goal in the coordinates that `settings` compare."""
    capacity, context = settings.capacity, settings.context
    width = compared_width(settings.goal_cost, capacity, z_goal.shape[-1])

    def score(candidates: Float[Tensor, "B S H A"]) -> Float[Tensor, "B S"]:
        imagined = sliced_roll_out(model, z_now, candidates, capacity, last_width=width, context=context)
        return prefix_distance(imagined[-1], z_goal)

    return solve(score, noise, settings.cem, initial_mean)
