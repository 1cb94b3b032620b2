"""What success on a file's pairs is worth: recorded actions replayed, random ones, and none at all."""

from pathlib import Path

import numpy as np
import torch

from alewm.benchmarks.timing import print_line
from alewm.data.pairs import EvaluationPair, load_or_draw_pairs
from alewm.data.splits import SplitBy, load_or_make_splits
from alewm.data.store import EpisodeStore
from alewm.envs.registration import Task, get_task
from alewm.errors import InputError
from alewm.evaluation.closed_loop import ClosedLoop, GoalPairs, Policy, run_closed_loop
from alewm.evaluation.floors import DoNothing, Replay, UniformRandom, Unseen
from alewm.evaluation.statistics import Proportion
from alewm.evaluation.success import BUDGET
from alewm.progress import Progress
from alewm.shapes import Float, Tensor

_PAIRS_AT_ONCE = 50  # each is a simulator with its memory


def bench_replay(*, data: Path, task_name: str | None, num_pairs: int | None, split: SplitBy, seed: int) -> None:
    """Prints success over all standard test pairs and over those that are not solved at the start."""
    with EpisodeStore.open(data) as store:
        task = get_task(_named(store, task_name))
        stored = load_or_draw_pairs(store, load_or_make_splits(store, split)).test[:num_pairs]
        actions = _recorded_actions(store, stored)
        pairs = GoalPairs.gather(stored, store.column, task.state_columns)
    report("replay", task, pairs, actions, seed, f"{len(pairs)} test pairs of {data}", data=str(data))


def report(
    bench: str,
    task: Task,
    pairs: GoalPairs,
    actions: Float[Tensor, "B steps action"],
    seed: int,
    what: str,
    **facts: str,
) -> None:
    """Prints success on `pairs`, described by `what`, of their recorded `actions` and of the floors."""
    presolved, outcomes = _outcomes(task, pairs, actions, seed)
    print(f"{task.name}: {what}, {int(presolved.sum())} solved at the start")
    print(f"{'':<28}{'all pairs':>12}{'not solved at the start':>26}")
    line: dict[str, float | list[float] | None] = {"presolved_share": float(presolved.double().mean())}
    titles = {"replay": "recorded actions, 25 steps", "random": "uniform random, 50 steps", "zero": "nothing, 50 steps"}
    for name, title in titles.items():
        success = outcomes[name]
        every, hard = Proportion.of(success.tolist()), Proportion.of(success[~presolved].tolist())
        print(f"{title:<28}{_percent(every):>12}{_percent(hard):>26}")
        line |= {
            f"{name}_success_rate": every.rate,
            f"{name}_interval": every.interval,
            f"{name}_success_rate_nontrivial": hard.rate,
        }
    print_line(bench, task=task.name, pairs=len(pairs), seed=seed, **facts, **line)


def _named(store: EpisodeStore, task_name: str | None) -> str:
    known = store.attributes.get("task")
    if known is None and task_name is None:
        raise InputError(f"{store.path} does not say which task it is of; add --task, for example --task two-room.")
    if known is not None and task_name not in (None, known):
        raise InputError(f"{store.path} holds episodes of {known!r}, not of {task_name!r}.")
    return str(task_name or known)


def _recorded_actions(store: EpisodeStore, pairs: tuple[EvaluationPair, ...]) -> torch.Tensor:
    rows = np.array([np.arange(pair.start_row, pair.goal_row) for pair in pairs])
    return torch.from_numpy(store.actions[rows])


def _outcomes(
    task: Task, pairs: GoalPairs, actions: torch.Tensor, seed: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Which pairs were solved at the start, and which each policy solved."""
    found: dict[str, list[ClosedLoop]] = {"replay": [], "random": [], "zero": []}
    with Progress("running", len(pairs), "pairs") as bar:
        for first in range(0, len(pairs), _PAIRS_AT_ONCE):
            chosen = range(len(pairs))[first : first + _PAIRS_AT_ONCE]
            envs, some = Unseen(task.make_vector_env(len(chosen))), pairs.take(chosen)
            policies: dict[str, tuple[Policy, int]] = {
                "replay": (Replay(actions[list(chosen)]), actions.shape[1]),
                "random": (UniformRandom(task.action_dim, BUDGET, seed), BUDGET),
                "zero": (DoNothing(task.action_dim, BUDGET), BUDGET),
            }
            for name, (policy, budget) in policies.items():
                found[name].append(run_closed_loop(envs, some, policy, budget=budget))
            bar.advance(len(chosen))
    presolved = torch.cat([outcome.presolved for outcome in found["zero"]])
    return presolved, {name: torch.cat([part.success for part in parts]) for name, parts in found.items()}


def _percent(share: Proportion) -> str:
    return "-" if share.rate is None else f"{100 * share.rate:.1f} %"
