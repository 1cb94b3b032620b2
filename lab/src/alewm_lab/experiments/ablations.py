"""What variants of one method are compared by: success, what the selector did, and what each prefix is worth.

Which part of ALeWM does the work: one thing changed at a time, the rest as the task's preset has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from alewm.evaluation.statistics import Spread
from alewm.sweeps.grid import MULTIPLIER
from alewm.sweeps.library import EvaluationWork, TrainingRun
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Series, Theme
from alewm.training.config import Method
from alewm_lab.experiments.capacity_dynamics import PATH_HEAD, PATH_LEGEND, draw_dynamics, path_cells, q_over_training
from alewm_lab.experiments.experiment import Experiment, ExperimentFigure, Groups, Outcome, Recipe, Results
from alewm_lab.experiments.request import TASK_TITLES, Request
from alewm_lab.oscillator.measures import distance_from_survival
from alewm_lab.presentation import NONE, panel_grid


def learns_q(run: TrainingRun) -> bool:
    """Whether q moves while it trains."""
    return run.config.model.has_selector and not run.config.objective.freezes_selector


def success_table(request: Request, groups: Groups, results: Results) -> Table:
    """Success, pairs won and lost against the task's first variant, capacity, and how the latent meets its target."""
    test = request.scale.evaluation()
    first: dict[str, tuple[str, tuple[TrainingRun, ...]]] = {}
    for (task, name), runs in groups.items():
        first.setdefault(task, (name, runs))
    rows: list[Row] = []
    for (task, name), runs in groups.items():
        whole, others = first[task]
        rates = [100 * results.evaluation(run, test)["success_rate"] for run in runs]
        won, lost = only_one_reaches(request, runs, others, results)
        shown = [
            results.over_seeds(runs, test).percent(1),
            ", ".join(f"{rate:.1f}" for rate in rates),
            NONE if name == whole else f"{won}, {lost}",
            results.over_seeds(runs, test, "mean_capacity").shown(),
            Spread.of([misfit(run, results) for run in runs]).shown(3),
            Spread.of([_effective_rank(run, results) for run in runs]).shown(1),
        ]
        commands = results.commands(runs, test)
        rows.append([TASK_TITLES[task], name, *(Cell(text, commands=commands) for text in shown)])
    head = ["task", "variant", "SR (%)", "by seed", "pairs won, lost", "E[K]", "variance off by", "rank"]
    text = (
        f"Test success (mean ± SEM over seeds, and of each seed); pairs, over all seeds, that are reached where the "
        f"same seed of {next(iter(groups))[1]} misses them, and the other way round; mean planning capacity; and from "
        f"the last batch looked at in training how far the variance of a masked coordinate is from the prior's "
        f"survival, on average over coordinates, and the effective rank of latents."
    )
    return Table.of("ablations", request.caption(text), head, rows)


def selector_table(request: Request, groups: Groups, results: Results) -> Table:
    """How far q went from the prior and when, where it ended, and when prediction came."""
    rows: list[Row] = []
    for (task, name), runs in groups.items():
        dynamics = [q_over_training([run], results) for run in runs if learns_q(run)]
        commands = results.training_commands(runs)
        cells = path_cells(dynamics, [_losses(run, results) for run in runs])
        rows.append([TASK_TITLES[task], name, *(Cell(text, commands=commands) for text in cells)])
    text = f"What the selector did while training: {PATH_LEGEND}."
    return Table.of("selector", request.caption(text), ["task", "variant", *PATH_HEAD], rows)


def capacities_table(
    request: Request, groups: Groups, imposed: Mapping[tuple[str, str], Sequence[int]], results: Results
) -> Table:
    """Success with the capacities that were `imposed`, beside that with the chosen one."""
    ks = sorted({k for each in imposed.values() for k in each})
    rows: list[Row] = []
    for (task, name), runs in groups.items():
        cells = [
            results.success_cell(runs, request.scale.evaluation(capacity=str(k))) if k in imposed[task, name] else NONE
            for k in ks
        ]
        rows.append([TASK_TITLES[task], name, *cells, results.success_cell(runs, request.scale.evaluation())])
    head = ["task", "variant", *(f"k = {k}" for k in ks), "as chosen"]
    text = "Test success (%, mean ± SEM over seeds) with imposed capacities and with the capacity that is chosen."
    return Table.of("capacities", request.caption(text), head, rows)


def success_dots(request: Request, groups: Groups, results: Results) -> Draw:
    """A panel per task, a line per variant, a dot per seed; the first variant stands out."""
    test = request.scale.evaluation()
    rates = {key: [100 * results.evaluation(run, test)["success_rate"] for run in runs] for key, runs in groups.items()}
    tasks, names = (list(dict.fromkeys(parts)) for parts in zip(*groups, strict=True))

    def draw(theme: Theme) -> Figure:
        figure, panels = panel_grid(len(tasks), panel=(2.6, 0.28 * len(names)), margin=(2.2, 0.9), sharey=True)
        for axes, task in zip(panels, tasks, strict=True):
            for row, name in enumerate(names):
                seeds, color = rates[task, name], theme.color(1 if row == 0 else 0)
                axes.plot([fmean(seeds)] * 2, [row - 0.3, row + 0.3], color=color, linewidth=2)
                axes.plot(seeds, [row] * len(seeds), "o", color=color, markersize=5, alpha=0.7)
            axes.set(title=TASK_TITLES[task], xlabel="test success (%)", ylim=(len(names) - 0.4, -0.6))
            axes.grid(axis="y", visible=False)
        panels[0].set_yticks(range(len(names)), names)
        return figure

    return draw


def only_one_reaches(
    request: Request, runs: Sequence[TrainingRun], others: Sequence[TrainingRun], results: Results
) -> tuple[int, int]:
    """Test pairs that only `runs` reach, and that only `others` reach, seed by seed, added up."""
    test = request.scale.evaluation()
    matched = [
        (ours.success, theirs.success)
        for run, other in zip(runs, others, strict=True)
        for ours, theirs in zip(results.records(run, test), results.records(other, test), strict=True)
    ]
    return sum(a and not b for a, b in matched), sum(b and not a for a, b in matched)


def misfit(run: TrainingRun, results: Results) -> float:
    """Mean over coordinates of |masked variance - prior survival|, the last time training looked."""
    last = results.metrics(run, "latent")[-1]
    return distance_from_survival(last["masked_variance"], last["prior_survival"])


def _losses(run: TrainingRun, results: Results) -> Series:
    entries = results.metrics(run, "train")
    return [float(entry["step"]) for entry in entries], [float(entry["prediction"]) for entry in entries]


def _effective_rank(run: TrainingRun, results: Results) -> float:
    return float(results.metrics(run, "latent")[-1]["effective_rank"])


@dataclass(frozen=True)
class Variant:
    """A method with the preset's hyperparameters, and the fields that are different, by dotted path."""

    method: Method = "alewm"
    changes: Mapping[str, Any] = field(default_factory=dict)

    def runs(self, request: Request, task: str, width: int) -> tuple[TrainingRun, ...]:
        """One per seed."""
        if self.method == "lewm":
            return request.over_seeds(request.lewm, task, width, width)
        makers = {
            "alewm": request.alewm,
            "alewm-sigreg": request.alewm_sigreg,
            "nested-dropout": request.nested_dropout,
        }
        return request.over_seeds(makers[self.method], task, width, changes=self.changes)


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


def build(request: Request) -> Experiment:
    """All variants of one width, planned as they choose and with imposed capacities."""
    (width,) = request.widths(192)
    groups: Groups = {
        (task, name): variant.runs(request, task, width)
        for task in request.tasks(*TASK_TITLES)
        for name, variant in VARIANTS.items()
    }
    # Seed by seed, so that an interruption leaves whole comparisons.
    runs = tuple(group[index] for index in range(len(request.seeds)) for group in groups.values())
    test = request.scale.evaluation()
    works = [EvaluationWork(run, test) for run in runs]
    imposed = {key: _imposed(key[1], group[0]) for key, group in groups.items()}
    works += [
        EvaluationWork(run, request.scale.evaluation(capacity=str(k)))
        for key, group in groups.items()
        for k in imposed[key]
        for run in group
    ]

    def outcome(results: Results) -> Outcome:
        tables = (
            success_table(request, groups, results),
            selector_table(request, groups, results),
            capacities_table(request, groups, imposed, results),
        )
        text = request.caption("Test success by variant: a dot per seed, their mean as a line.")
        dots = ExperimentFigure("ablations", text, success_dots(request, groups, results), results.commands(runs, test))
        moving = {key: group[0] for key, group in groups.items() if learns_q(group[0])}
        panels = [
            (f"{TASK_TITLES[task]}, {name}", q_over_training([run], results)) for (task, name), run in moving.items()
        ]
        text = request.caption(
            f"Mean probability of each capacity over training of seed {request.seeds[0]}, averaged over the batches "
            f"between two logged steps; at step 0 it is the prior."
        )
        commands = results.training_commands(moving.values())
        return Outcome(tables, (dots, ExperimentFigure("ablations-q", text, draw_dynamics(panels), commands)))

    return Experiment("ablations", request, runs, outcome, tuple(works))


def _imposed(name: str, run: TrainingRun) -> tuple[int, ...]:
    """Capacities that a variant plans with besides the one it chooses; a model with one capacity has none."""
    ks = run.config.model.capacities
    if len(ks) == 1:
        return ()
    return ks if name in SWEPT else (ks[0], ks[-1])


RECIPE = Recipe("ablations", "which part does the work: one thing changed about ALeWM at a time", build)
