"""One plan for a group of episodes that share a capacity, and the choice between its CPU and GPU paths.

The search is a function of tensors whose shapes are fixed by the configuration and the group's size, so a compiled or
captured version can take its place in `Planner`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from alewm.devices import why_no_triton
from alewm.model.predictor import LONGEST_FAST_CONTEXT
from alewm.model.world_model import WorldModel
from alewm.planning.cem import CEMConfig, CEMResult
from alewm.planning.distilled import DistilledModel
from alewm.planning.rollout import CONTEXT, GoalCost, PlanningModel, compared_width, prefix_distance, sliced_roll_out
from alewm.planning.searches import SEARCHES, SearchName
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
    search: SearchName = "cem"
    """How candidates are improved (`alewm.planning.searches`)."""
    on_iteration: Callable[[], None] | None = field(default=None, compare=False)
    """Called whenever candidates are to be scored, for a progress bar; a search recorded on a GPU never calls it."""


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
        if settings.on_iteration is not None:
            settings.on_iteration()
        imagined = sliced_roll_out(model, z_now, candidates, capacity, last_width=width, context=context)
        return prefix_distance(imagined[-1], z_goal)

    return SEARCHES[settings.search](score, noise, settings.cem, initial_mean)


class SearchChoice(NamedTuple):
    """A search, and a line that says which it is and why it was taken."""

    inner_loop: InnerLoop
    description: str


def choose_search(
    model: PlanningModel, device: torch.device, *, reference: bool = False, search: SearchName = "cem"
) -> SearchChoice:
    """The recorded search where a GPU, Triton and a model of ours meet; the plain one otherwise, or if asked for."""
    if reference:
        return SearchChoice(plan_group, "reference (asked for)")
    obstacle = _why_not_recorded(model, device) if search == "cem" else f"{search} runs as it is written"
    if obstacle is not None or not isinstance(model, (WorldModel, DistilledModel)):
        return SearchChoice(plan_group, f"reference ({obstacle})")
    from alewm.planning.gpu_search import GraphedSearch  # Triton takes a second to import: only where it is used

    if isinstance(model, DistilledModel):
        return SearchChoice(GraphedSearch(model), "distilled dynamics in a CUDA graph (a GPU with Triton)")
    return SearchChoice(GraphedSearch(model), "bfloat16 rollouts in a CUDA graph (a GPU with Triton)")


def _why_not_recorded(model: PlanningModel, device: torch.device) -> str | None:
    if (obstacle := why_no_triton(device)) is not None:
        return obstacle
    if isinstance(model, DistilledModel):
        return None
    if not isinstance(model, WorldModel):
        return f"the model is a {type(model).__name__}"
    if model.predictor.config.context_length > LONGEST_FAST_CONTEXT:
        return f"the predictor reads more than {LONGEST_FAST_CONTEXT} positions"
    return None
