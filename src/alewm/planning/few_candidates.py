"""One iteration of CEM for a few episodes, in three kernels beside the rollout instead of some fifteen.

It changes the search where it stands, on the device, so that a recording of it can be replayed.
"""

from collections.abc import Callable

import torch
import triton

from alewm.model.few_rows.launching import launch
from alewm.planning import refinement_kernels
from alewm.shapes import Float, Int, Tensor

MOST_CANDIDATES = 1024
"""Candidates of one episode that a program can rank."""

_ENTRIES = 512
_ROWS = 4
_COLUMNS, _RIVALS = 16, 32

ImagineEnd = Callable[[Tensor], Tensor]
"""Candidates [B, S, H, A] to the latents [B · S, width] they end in."""


def refine_in_place(
    imagine_end: ImagineEnd,
    goal: Float[Tensor, "B D"],
    mean: Float[Tensor, "B H A"],
    std: Float[Tensor, "B H A"],
    noise: Float[Tensor, "iterations B S H A"],
    step: Int[Tensor, "1"],
    elite_costs: Float[Tensor, "iterations B"],
    num_elites: int,
) -> None:
    """Do what `cem.refine` does with the noise of this step: replace mean and std, note the elites' mean cost.

    All tensors are contiguous, float32 but for `step`, which moves on by one.
    """
    candidates = _candidates(mean, std, noise, step)
    costs = _costs(imagine_end(candidates), goal)
    _refit(costs, candidates, mean, std, elite_costs, step, num_elites)
    step.add_(1)


def _candidates(mean: Tensor, std: Tensor, noise: Tensor, step: Tensor) -> Float[Tensor, "B S H A"]:
    out = torch.empty(noise.shape[1:], device=noise.device)
    per_plan, total = mean[0].numel(), out.numel()
    launch(
        refinement_kernels.spread_candidates, (triton.cdiv(total, _ENTRIES),),
        mean, std, noise, step, out, per_plan, per_plan * noise.shape[2], total, SIZE=_ENTRIES,
    )  # fmt: skip
    return out


def _costs(end: Float[Tensor, "rows width"], goal: Float[Tensor, "B D"]) -> Float[Tensor, "B S"]:
    (num_rows, width), (B, D) = end.shape, goal.shape
    costs = torch.empty(B, num_rows // B, device=end.device)
    launch(
        refinement_kernels.squared_distance, (triton.cdiv(num_rows, _ROWS),),
        end, goal, costs, num_rows, width, D, num_rows // B, ROWS=_ROWS, SIZE=triton.next_power_of_2(width),
    )  # fmt: skip
    return costs


def _refit(
    costs: Tensor, candidates: Tensor, mean: Tensor, std: Tensor, elite_costs: Tensor, step: Tensor, num_elites: int
) -> None:
    B, S = costs.shape
    per_plan = mean[0].numel()
    launch(
        refinement_kernels.refit, (B, triton.cdiv(per_plan, _COLUMNS)),
        costs, candidates, mean, std, elite_costs, step, S, num_elites, per_plan,
        SIZE=triton.next_power_of_2(S), RIVALS=_RIVALS, COLUMNS=_COLUMNS, num_warps=8,
    )  # fmt: skip
