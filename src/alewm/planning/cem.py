"""The cross-entropy method over any scoring function, for many episodes at once.

It knows no environment, model, logger or clock, and draws nothing itself: the noise comes in. One iteration is a
fixed sequence of tensor operations of fixed shapes, so that it can be compiled or captured as a whole.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from alewm.config import Count, Positive, check_ranges
from alewm.errors import InputError
from alewm.shapes import Float, Tensor

Score = Callable[[Tensor], Tensor]
"""Candidates [B, S, H, A] to costs [B, S], lower is better."""


@dataclass(frozen=True)
class CEMConfig:
    """Sizes of the search; the defaults are the paper's."""

    num_candidates: Count = 300
    """Action sequences scored per episode and iteration (S)."""

    num_iterations: Count = 30
    """Times the distribution is refined."""

    num_elites: Count = 30
    """Best candidates the distribution is refitted to (E)."""

    initial_std: Positive = 1.0
    """Standard deviation of the first candidates, in normalised action units."""

    @classmethod
    def with_a_tenth_elite(cls, num_candidates: int, num_iterations: int) -> "CEMConfig":
        """A search of this size that keeps the paper's share of elites, 30 of 300."""
        return cls(num_candidates, num_iterations, max(2, num_candidates // 10))

    def __post_init__(self) -> None:
        check_ranges(self)
        if not 2 <= self.num_elites <= self.num_candidates:
            raise InputError(
                f"CEM needs at least 2 elites (their spread is the next standard deviation) and as many candidates, "
                f"got {self.num_elites} elites of {self.num_candidates} candidates."
            )


@dataclass(frozen=True)
class CEMResult:
    """Where the search ended, per episode."""

    mean: Float[Tensor, "B H A"]
    """The plan: the mean of the last elites, not the best candidate ever seen."""

    std: Float[Tensor, "B H A"]
    """The spread of the last elites."""

    cost: Float[Tensor, "B"]
    """The cost of `mean`."""

    elite_costs: Float[Tensor, "B iterations"]
    """Mean cost of the elites in every iteration: how the search went."""


def solve(
    score: Score,
    noise: Float[Tensor, "iterations B S H A"],
    config: CEMConfig,
    initial_mean: Float[Tensor, "B H A"] | None = None,
) -> CEMResult:
    """The plan that minimises `score`, found with the given standard normal `noise`.

    Candidates are mean + std · noise; the noise of candidate 0 is zero, so that it is the mean itself. The mean and
    the standard deviation (n - 1) of the elites are the next mean and std. Nothing is clipped: what an action outside
    the range does is the environment's business. A candidate whose cost is NaN is never preferred.
    """
    mean = noise.new_zeros(noise.shape[1], *noise.shape[3:]) if initial_mean is None else initial_mean
    std = torch.full_like(mean, config.initial_std)
    elite_costs = []
    for step in range(config.num_iterations):
        mean, std, elite_cost = refine(score, mean, std, noise[step], config.num_elites)
        elite_costs.append(elite_cost)
    return CEMResult(mean, std, score(mean[:, None])[:, 0], torch.stack(elite_costs, 1))


def refine(
    score: Score,
    mean: Float[Tensor, "B H A"],
    std: Float[Tensor, "B H A"],
    noise: Float[Tensor, "B S H A"],
    num_elites: int,
) -> tuple[Float[Tensor, "B H A"], Float[Tensor, "B H A"], Float[Tensor, "B"]]:
    """One iteration: mean and spread of the elites among the candidates, and their mean cost."""
    candidates = mean[:, None] + std[:, None] * noise
    # topk ranks NaN above every number, so the lowest costs are numbers while there are any.
    best = score(candidates).topk(num_elites, dim=1, largest=False)
    elites = candidates.gather(1, best.indices[:, :, None, None].expand(-1, -1, *mean.shape[1:]))
    return elites.mean(1), elites.std(1), best.values.mean(1)


class CEM:
    """The search as one object: its sizes once, then any cost over any sequences.

    ```python
    import torch
    cem = CEM(num_candidates=64, num_iterations=10, num_elites=8)
    target = torch.tensor([0.3, -0.5])
    cost = lambda candidates: (candidates.sum(2) - target).square().sum(-1)  # [B, S, H, A] to [B, S]
    plan = cem(cost, torch.zeros(1, 4, 2), generator=torch.Generator().manual_seed(0)).mean
    ```
    """

    def __init__(
        self, num_candidates: int = 300, num_iterations: int = 30, num_elites: int = 30, initial_std: float = 1.0
    ) -> None:
        self.config = CEMConfig(num_candidates, num_iterations, num_elites, initial_std)

    def __call__(self, score: Score, initial_mean: Float[Tensor, "B H A"], *, generator: torch.Generator) -> CEMResult:
        """The plan that minimises `score`, searched from `initial_mean` with noise from `generator`."""
        shape = (self.config.num_iterations, len(initial_mean), self.config.num_candidates, *initial_mean.shape[1:])
        noise = torch.randn(shape, generator=generator, device=generator.device, dtype=initial_mean.dtype)
        noise[:, :, 0] = 0
        return solve(score, noise.to(initial_mean.device), self.config, initial_mean)
