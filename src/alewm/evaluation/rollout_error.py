"""Open-loop prediction error by horizon: how far imagination is from what was then seen."""

from dataclasses import dataclass

import torch

from alewm.planning.model_protocol import PlanningModel
from alewm.planning.rollout import CONTEXT, sliced_roll_out
from alewm.shapes import Float, Tensor


@dataclass(frozen=True)
class RolloutError:
    """Mean square error over the active coordinates after 1 ... H blocks."""

    model: Float[Tensor, "H"]
    """Of the imagined latents."""

    standing_still: Float[Tensor, "H"]
    """Of predicting that nothing changes: the scale on which `model` is to be read."""


@torch.no_grad()
def rollout_error(
    model: PlanningModel,
    latents: Float[Tensor, "B time D"],
    actions: Float[Tensor, "B H A"],
    capacity: int,
    *,
    context: int = CONTEXT,
) -> RolloutError:
    """Error of rolling out recorded `actions` from the first of H + 1 encoded latents, on the first k coordinates."""
    imagined = sliced_roll_out(model, latents[:, 0], actions[:, None], capacity, last_width=capacity, context=context)
    z_hat, z = torch.cat(imagined, 1).float(), latents[:, 1:, :capacity].float()
    first = latents[:, :1, :capacity].float()
    return RolloutError((z_hat - z).square().mean((0, 2)), (first - z).square().mean((0, 2)))
