"""Choosing a configuration on validation pairs alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from alewm.evaluation.settings import EvaluationSettings
from alewm.experiments.framework.experiment import Stage
from alewm.experiments.framework.results import Results
from alewm.experiments.framework.run import Run
from alewm.experiments.framework.work import Evaluation


@dataclass(frozen=True)
class Candidate:
    """One configuration, trained with several seeds."""

    runs: tuple[Run, ...]

    @property
    def weight(self) -> float:
        """Its λ."""
        return self.runs[0].config.objective.regularizer_weight


def selecting(runs: Sequence[Run], validation: EvaluationSettings) -> Stage:
    """The stage in which `runs` plan to the validation pairs that `select` looks at."""
    works = [Evaluation(run, validation) for run in runs]
    return Stage("selecting on validation pairs", lambda _: works, len(works))


def select(candidates: Sequence[Candidate], results: Results, settings: EvaluationSettings) -> Candidate:
    """The candidate that succeeds most often; ties go to the smaller capacity or width, then to the smaller λ.

    Successes are counted, not averaged: every candidate meets the same pairs with as many seeds, and counts tie
    exactly where means would differ by rounding.
    """
    assert settings.split == "validation", "selection looks at validation pairs only"
    assert len({len(candidate.runs) for candidate in candidates}) == 1, "candidates have different numbers of seeds"
    if len(candidates) == 1:
        return candidates[0]

    def preference(candidate: Candidate) -> tuple[int, float, float]:
        found = [results.evaluation(run, settings) for run in candidate.runs]
        successes = sum(round(each["success_rate"] * each["episodes"]) for each in found)
        capacity = sum(each["mean_capacity"] for each in found) / len(found)
        return -successes, capacity, candidate.weight

    return min(candidates, key=preference)
