"""Searches over any scoring function, for many episodes at once: CEM, iCEM, MPPI and gradient descent.

They know no environment, model, logger or clock, and draw nothing: the noise of every iteration comes in, so the noise
of an episode never depends on the episodes beside it. One iteration is a fixed sequence of tensor operations of fixed
shapes, so that it can be compiled or captured as a whole.

    cem         mean and spread of the elites become the next distribution
    icem        CEM with noise that is smooth in time, elites kept for the next iteration, and a slower distribution
    mppi        all candidates, weighted by exp(-cost / temperature), move the mean; the spread stays
    gradient    the best of the first candidates follow the gradient of the cost
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

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
    mean, std = _begin(noise, config, initial_mean)
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
    elites, costs = _best(score, mean[:, None] + std[:, None] * noise, num_elites)
    return elites.mean(1), elites.std(1), costs.mean(1)


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


def icem(
    score: Score,
    noise: Float[Tensor, "iterations B S H A"],
    config: CEMConfig,
    initial_mean: Float[Tensor, "B H A"] | None = None,
    *,
    colour: float = 2.0,
    num_kept: int = 5,
    momentum: float = 0.1,
) -> CEMResult:
    """The improved cross-entropy method (Pinneri et al., 2020), at a fixed number of candidates.

    Its noise has the power spectrum 1 / f^colour along the blocks of a plan. The best `num_kept` elites are candidates
    of the next iteration again. Of the old mean and spread, `momentum` stays. The plan is the last mean, or the best
    candidate where that costs less.
    """
    mean, std = _begin(noise, config, initial_mean)
    colouring = _colouring(noise.shape[-2], colour).to(noise)
    num_kept = min(num_kept, config.num_elites, config.num_candidates - 1)
    kept, elite_costs = mean[:, None], list[Tensor]()
    for white in noise:
        candidates = mean[:, None] + std[:, None] * torch.einsum("hg,bsga->bsha", colouring, white)
        if elite_costs:  # after the mean, which is candidate 0
            candidates = torch.cat([candidates[:, :1], kept, candidates[:, 1 + num_kept :]], 1)
        elites, costs = _best(score, candidates, config.num_elites)
        kept = elites[:, :num_kept]
        mean = momentum * mean + (1 - momentum) * elites.mean(1)
        std = momentum * std + (1 - momentum) * elites.std(1)
        elite_costs.append(costs.mean(1))
    plan, cost = _best(score, torch.cat([mean[:, None], kept[:, :1]], 1), 1)
    return CEMResult(plan[:, 0], std, cost[:, 0], torch.stack(elite_costs, 1))


def mppi(
    score: Score,
    noise: Float[Tensor, "iterations B S H A"],
    config: CEMConfig,
    initial_mean: Float[Tensor, "B H A"] | None = None,
    *,
    temperature: float = 0.3,
) -> CEMResult:
    """Model predictive path integral control (Williams et al., 2017), iterated from one frame.

    The mean moves to the average of all candidates, weighted by exp(-(cost - lowest) / temperature). `temperature` is a
    share of the spread of the costs of that iteration, because every latent has its own scale of distances. The spread
    of the candidates never shrinks.
    """
    mean, std = _begin(noise, config, initial_mean)
    elite_costs = []
    for white in noise:
        candidates = mean[:, None] + std[:, None] * white
        costs = score(candidates)
        elite_costs.append(costs.topk(config.num_elites, dim=1, largest=False).values.mean(1))
        # A candidate whose cost is not finite has no weight.
        known = costs.where(costs.isfinite(), torch.inf)
        finite = costs.where(costs.isfinite(), torch.nan)
        spread = (finite - finite.nanmean(1, keepdim=True)).square().nanmean(1, keepdim=True).sqrt()
        weights = (-(known - known.amin(1, keepdim=True)) / (temperature * spread + 1e-12)).softmax(1)
        mean = torch.einsum("bs,bsha->bha", weights.to(candidates.dtype), candidates)
    return CEMResult(mean, std, score(mean[:, None])[:, 0], torch.stack(elite_costs, 1))


def gradient(
    score: Score,
    noise: Float[Tensor, "iterations B S H A"],
    config: CEMConfig,
    initial_mean: Float[Tensor, "B H A"] | None = None,
    *,
    step_size: float = 0.1,
) -> CEMResult:
    """Gradient descent (Adam) from the elites of the first candidates; the lowest cost found on the way wins.

    One iteration scores the elites only, forward and backward, where CEM scores all candidates forward.
    """
    mean, std = _begin(noise, config, initial_mean)
    plans, best_costs = _best(score, mean[:, None] + std[:, None] * noise[0], config.num_elites)
    best, elite_costs = plans, list[Tensor]()
    with torch.enable_grad():
        moving = plans.detach().clone().requires_grad_()
        optimizer = torch.optim.Adam([moving], lr=step_size)
        for _ in range(config.num_iterations):
            costs = score(moving)
            best, best_costs = _lower(best, best_costs, moving.detach(), costs.detach())
            (moving.grad,) = torch.autograd.grad(costs.nansum(), moving)
            optimizer.step()
            elite_costs.append(costs.detach().mean(1))
    with torch.no_grad():
        best, best_costs = _lower(best, best_costs, moving.detach(), score(moving.detach()))
    winner = best_costs.argmin(1)
    rows = torch.arange(len(best), device=best.device)
    return CEMResult(best[rows, winner], best.std(1), best_costs[rows, winner], torch.stack(elite_costs, 1))


SearchName = Literal["cem", "icem", "mppi", "gradient"]
SEARCHES: Mapping[SearchName, Callable[[Score, Tensor, CEMConfig, Tensor], CEMResult]] = {
    "cem": solve,
    "icem": icem,
    "mppi": mppi,
    "gradient": gradient,
}


def _begin(noise: Tensor, config: CEMConfig, initial_mean: Tensor | None) -> tuple[Tensor, Tensor]:
    mean = noise.new_zeros(noise.shape[1], *noise.shape[3:]) if initial_mean is None else initial_mean
    return mean, torch.full_like(mean, config.initial_std)


def _best(score: Score, candidates: Float[Tensor, "B S H A"], count: int) -> tuple[Tensor, Tensor]:
    """The `count` candidates of lowest cost and their costs, the best first."""
    # topk ranks NaN above every number, so the lowest costs are numbers while there are any.
    best = score(candidates).topk(count, dim=1, largest=False)
    index = best.indices[:, :, None, None].expand(-1, -1, *candidates.shape[2:])
    return candidates.gather(1, index), best.values


def _lower(
    best: Float[Tensor, "B E H A"], best_costs: Float[Tensor, "B E"], plans: Tensor, costs: Tensor
) -> tuple[Tensor, Tensor]:
    """Of each pair of plans the one that costs less; the known one where the other's cost is NaN."""
    wins = costs < best_costs
    return torch.where(wins[:, :, None, None], plans, best), torch.where(wins, costs, best_costs)


@lru_cache(maxsize=8)
def _colouring(length: int, exponent: float) -> Float[Tensor, "length length"]:
    """The matrix that gives white noise of `length` steps the power spectrum 1 / f^exponent and unit variance.

    It scales the amplitudes of the real Fourier modes; the constant mode counts as the lowest frequency.
    """
    time = torch.arange(length, dtype=torch.float64)
    modes = [torch.ones(length, dtype=torch.float64) / math.sqrt(length)]
    amplitudes = [1.0]
    for frequency in range(1, length // 2 + 1):
        for wave in (torch.cos, torch.sin):
            mode = wave(2 * math.pi * frequency * time / length)
            if (norm := mode.norm()) > 1e-9:  # the sine of the highest frequency vanishes where the length is even
                modes.append(mode / norm)
                amplitudes.append(frequency ** (-exponent / 2))
    basis, scale = torch.stack(modes, 1), torch.tensor(amplitudes, dtype=torch.float64)
    matrix = basis @ torch.diag(scale) @ basis.mT
    # Circulant: every row has the same norm, which is the standard deviation it gives.
    coloured: Tensor = matrix / matrix[0].norm()
    return coloured
