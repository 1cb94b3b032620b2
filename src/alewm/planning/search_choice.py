"""Which search a model is planned with on a device, and why."""

from typing import NamedTuple

import torch

from alewm.devices import why_no_triton
from alewm.model.imagination import LONGEST_FAST_CONTEXT
from alewm.model.world_model import WorldModel
from alewm.planning.distilled import DistilledModel
from alewm.planning.inner_loop import InnerLoop, plan_group
from alewm.planning.model_protocol import PlanningModel


class SearchChoice(NamedTuple):
    """A search, and a line that says which it is and why it was taken."""

    inner_loop: InnerLoop
    description: str


def choose_search(model: PlanningModel, device: torch.device, *, reference: bool = False) -> SearchChoice:
    """The recorded search where a GPU, Triton and a model of ours meet; the plain one otherwise, or if asked for."""
    if reference:
        return SearchChoice(plan_group, "reference (asked for)")
    obstacle = _why_not_recorded(model, device)
    if obstacle is not None or not isinstance(model, (WorldModel, DistilledModel)):
        return SearchChoice(plan_group, f"reference ({obstacle})")
    from alewm.planning.graphed import GraphedSearch  # importing Triton takes a second, which only GPUs should cost

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
