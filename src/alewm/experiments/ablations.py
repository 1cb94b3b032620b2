"""Which part of ALeWM does the work: one thing changed at a time, the rest as the task's preset has it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from alewm.experiments.ablation_tables import (
    capacities_table,
    learns_q,
    selector_table,
    success_dots,
    success_table,
)
from alewm.experiments.capacity_dynamics import draw_dynamics, q_over_training
from alewm.experiments.framework.choice import MULTIPLIER, TASK_TITLES, Choice
from alewm.experiments.framework.contest import Groups
from alewm.experiments.framework.experiment import Drawing, Experiment, Outcome, Recipe, Stage
from alewm.experiments.framework.results import Results
from alewm.experiments.framework.run import Run
from alewm.experiments.framework.work import Evaluation, Training
from alewm.training.losses import Method


@dataclass(frozen=True)
class Variant:
    """A method with the preset's hyperparameters, and the fields that are different, by dotted path."""

    method: Method = "alewm"
    changes: Mapping[str, Any] = field(default_factory=dict)

    def runs(self, choice: Choice, task: str, width: int) -> tuple[Run, ...]:
        """One per seed."""
        if self.method == "lewm":
            return choice.over_seeds(choice.lewm, task, width, width)
        makers = {
            "alewm": choice.alewm,
            "alewm-sigreg": choice.alewm_sigreg,
            "nested-dropout": choice.nested_dropout,
        }
        return choice.over_seeds(makers[self.method], task, width, changes=self.changes)


VARIANTS = {
    "ALeWM": Variant(),
    "exact marginalisation": Variant(changes={"objective.marginalises_capacity": True}),
    "KL 0.01 to the prior": Variant(changes={"objective.prior_weight": 0.01}),
    "KL 0.1 to the prior": Variant(changes={"objective.prior_weight": 0.1}),
    "s_q 0.3": Variant(changes={MULTIPLIER: 0.3}),
    "q delayed by 1/2": Variant(changes={"training.optim.selector_delay": 0.5}),
    "q frozen at the prior": Variant(changes={"objective.freezes_selector": True}),
    "SIGReg, sampled": Variant("alewm-sigreg"),
    "SIGReg, marginal": Variant("alewm-sigreg", {"objective.masked_sigreg": "marginal"}),
    "nested dropout": Variant("nested-dropout"),
    "nested dropout, full target": Variant("nested-dropout", {"objective.prediction_target": "full"}),
    "LeWM": Variant("lewm"),
}
"""By what tables call them; the others are compared with the first."""

SWEPT = ("ALeWM", "nested dropout", "nested dropout, full target")
"""Planned with every capacity; others with the one they choose, the smallest and the largest."""


def build(choice: Choice) -> Experiment:
    """All variants of one width, planned as they choose and with imposed capacities."""
    (width,) = choice.widths(192)
    groups: Groups = {
        (task, name): variant.runs(choice, task, width)
        for task in choice.tasks(*TASK_TITLES)
        for name, variant in VARIANTS.items()
    }
    # Seed by seed, so that an interruption leaves whole comparisons.
    runs = tuple(group[index] for index in range(len(choice.seeds)) for group in groups.values())
    test = choice.scale.evaluation()
    works = [Evaluation(run, test) for run in runs]
    imposed = {key: _imposed(key[1], group[0]) for key, group in groups.items()}
    works += [
        Evaluation(run, choice.scale.evaluation(capacity=str(k)))
        for key, group in groups.items()
        for k in imposed[key]
        for run in group
    ]

    def outcome(results: Results) -> Outcome:
        tables = (
            success_table(choice, groups, results),
            selector_table(choice, groups, results),
            capacities_table(choice, groups, imposed, results),
        )
        text = choice.caption("Test success by variant: a dot per seed, their mean as a line.")
        dots = Drawing("ablations", text, success_dots(choice, groups, results), results.commands(runs, test))
        moving = {key: group[0] for key, group in groups.items() if learns_q(group[0])}
        panels = [
            (f"{TASK_TITLES[task]}, {name}", q_over_training(run, results)) for (task, name), run in moving.items()
        ]
        text = choice.caption(
            f"Mean probability of each capacity over training of seed {choice.seeds[0]}, averaged over the batches "
            f"between two logged steps; at step 0 it is the prior."
        )
        commands = tuple(Training(run).command(results.library) for run in moving.values())
        return Outcome(tables, (dots, Drawing("ablations-q", text, draw_dynamics(panels), commands)))

    return Experiment(
        "ablations", choice, runs, (Stage("planning to test pairs", lambda _: works, len(works)),), outcome
    )


def _imposed(name: str, run: Run) -> tuple[int, ...]:
    """Capacities that a variant plans with besides the one it chooses; a model with one capacity has none."""
    ks = run.config.model.capacities
    if len(ks) == 1:
        return ()
    return ks if name in SWEPT else (ks[0], ks[-1])


RECIPE = Recipe("ablations", "which part does the work: one thing changed about ALeWM at a time", build)
