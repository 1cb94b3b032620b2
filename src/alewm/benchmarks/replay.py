"""What success on pairs is worth without a model: recorded actions replayed, random ones, and none at all."""

from typing import Any

import torch

from alewm.benchmarks.standard_pairs import StandardPairs
from alewm.benchmarks.timing import print_line
from alewm.evaluation.closed_loop import ClosedLoop, Policy, run_closed_loop
from alewm.evaluation.floors import DoNothing, Replay, UniformRandom, Unseen
from alewm.evaluation.statistics import Proportion
from alewm.evaluation.success import BUDGET
from alewm.progress import Progress
from alewm.shapes import Bool, Tensor

_PAIRS_AT_ONCE = 50  # each is a simulator with its memory


def bench_replay(
    bench: str, standard: StandardPairs, seed: int, planned: Bool[Tensor, "B"] | None = None, **facts: Any
) -> None:
    """Prints success over all pairs and over those not solved at the start, and the line of JSON of `bench`.

    Success is that of the recorded actions, of both floors, and of what was `planned`, where that is given.
    """
    task, presolved, outcomes = standard.task, *_outcomes(standard, seed)
    titles = {"replay": "recorded actions, 25 steps", "random": "uniform random, 50 steps", "zero": "nothing, 50 steps"}
    if planned is not None:
        titles["planned"], outcomes["planned"] = "CEM in the simulator, 50 steps", planned
    print(f"{task.name}: {standard.what}, {int(presolved.sum())} solved at the start")
    print(f"{'':<32}{'all pairs':>24}{'not solved at the start':>26}")
    line: dict[str, Any] = {"presolved_share": float(presolved.double().mean())}
    for name, title in titles.items():
        success = outcomes[name]
        every, hard = Proportion.of(success.tolist()), Proportion.of(success[~presolved].tolist())
        print(f"{title:<32}{_percent(every):>24}{_percent(hard):>26}")
        line |= {
            f"{name}_success_rate": every.rate,
            f"{name}_interval": every.interval,
            f"{name}_success_rate_nontrivial": hard.rate,
            f"{name}_interval_nontrivial": hard.interval,
        }
    print_line(bench, task=task.name, pairs=len(standard.pairs), seed=seed, **standard.facts, **facts, **line)


def _outcomes(standard: StandardPairs, seed: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Which pairs were solved at the start, and which each policy solved."""
    task, pairs = standard.task, standard.pairs
    found: dict[str, list[ClosedLoop]] = {"replay": [], "random": [], "zero": []}
    with Progress("running", len(pairs), "pairs") as bar:
        for first in range(0, len(pairs), _PAIRS_AT_ONCE):
            chosen = range(len(pairs))[first : first + _PAIRS_AT_ONCE]
            envs, some = Unseen(task.make_vector_env(len(chosen))), pairs.take(chosen)
            assert some.recorded is not None
            policies: dict[str, tuple[Policy, int]] = {
                "replay": (Replay(some.recorded), some.recorded.shape[1]),
                "random": (UniformRandom(task.action_dim, BUDGET, seed), BUDGET),
                "zero": (DoNothing(task.action_dim, BUDGET), BUDGET),
            }
            for name, (policy, budget) in policies.items():
                found[name].append(run_closed_loop(envs, some, policy, budget=budget))
            bar.advance(len(chosen))
    presolved = torch.cat([outcome.presolved for outcome in found["zero"]])
    return presolved, {name: torch.cat([part.success for part in parts]) for name, parts in found.items()}


def _percent(share: Proportion) -> str:
    if share.rate is None:
        return "-"
    low, high = (100 * bound for bound in share.interval)
    return f"{100 * share.rate:.1f} % ({low:.1f} to {high:.1f})"
