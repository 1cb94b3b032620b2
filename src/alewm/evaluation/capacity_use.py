"""Which capacities were used, and whether the selector learned anything beyond its prior."""

from collections.abc import Sequence
from typing import Any

from alewm.capacity.support import CapacitySupport
from alewm.shapes import Float, Tensor


def total_variation(p: Float[Tensor, "*batch C"], q: Float[Tensor, "C"]) -> Float[Tensor, "*batch"]:
    """½ Σ |p - q|: 0 for equal distributions, 1 for disjoint ones."""
    return (p - q).abs().sum(-1) / 2


def capacity_use(
    capacities: Sequence[int], q: Float[Tensor, "B C"], prior: Float[Tensor, "C"], support: CapacitySupport
) -> dict[str, Any]:
    """Counts and means of the planned capacities, and how q(k | first, goal) moved and varies.

    - `capacity_counts`: episodes per supported capacity, unused ones included;
    - `mean_capacity`: mean over episodes of the planned capacity;
    - `q_mean`: the mean of q over episodes, in the order of `support`;
    - `q_shift`: total-variation distance of `q_mean` from the prior. 0 is a selector that never left its start;
    - `q_spread`: mean over episodes of the total-variation distance of q from `q_mean`. 0 is a selector that ignores
      what it sees.
    """
    q, prior = q.cpu().double(), prior.cpu().double()
    mean = q.mean(0)
    return {
        "support": list(support.capacities),
        "capacity_counts": {str(k): sum(chosen == k for chosen in capacities) for k in support.capacities},
        "mean_capacity": sum(capacities) / len(capacities),
        "q_mean": mean.tolist(),
        "q_prior": prior.tolist(),
        "q_shift": total_variation(mean, prior).item(),
        "q_spread": total_variation(q, mean).mean().item(),
    }
