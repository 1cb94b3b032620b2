"""ALeWM with other priors over capacities: over ranks (the paper's), over values, and without cliffs between blocks."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from alewm.capacity.prior import distance_from_survival
from alewm.evaluation.held_out import Trained
from alewm.evaluation.statistics import Spread
from alewm.sweeps.grid import DEGREE
from alewm.sweeps.library import EvaluationWork, TrainingRun, TrainingWork
from alewm.tables import Cell, Row, Table
from alewm_lab.experiments.contest import Contest, Groups, success_columns
from alewm_lab.experiments.experiment import Experiment, ExperimentFigure, MeasurementWork, Outcome, Recipe, Results
from alewm_lab.experiments.request import TASK_TITLES, Request
from alewm_lab.experiments.theory import capacity_probabilities, variance_beside_survival, variance_panels

PRIORS = ("ranks", "values", "smooth")


def build(request: Request) -> Experiment:
    """Models of every prior with the task's hyperparameters; with a search, α is chosen on validation pairs."""
    (width,) = request.widths(192)
    tasks = request.tasks(*TASK_TITLES)
    degrees = request.variations(DEGREE) if request.searches else [{}]
    contest = Contest(
        request,
        {
            (task, prior): [
                request.over_seeds(request.alewm, task, width, changes={**degree, "model.prior": prior})
                for degree in degrees
            ]
            for task in tasks
            for prior in PRIORS
        },
    )
    test = request.scale.evaluation()
    options = (("num_windows", 100 if request.is_smoke else 5_000),)

    def variance(run: TrainingRun) -> MeasurementWork:
        return MeasurementWork(run, "variance", measure, options, request.command("priors"))

    def outcome(results: Results, groups: Groups) -> Outcome:
        every = [variance(run) for runs in groups.values() for run in runs]
        found = {each.run: results.measured(each) for each in every}
        commands = tuple(w.command(results.library) for each in every for w in (TrainingWork(each.run), each))
        panels = {
            f"{TASK_TITLES[task]}, {prior}": _mean([found[r] for r in groups[task, prior]]) for task, prior in groups
        }
        text = (
            "Variance of each coordinate under the mask beside the survival probability that exact matching would give "
            "it, by prior. Windows of validation episodes, mean over seeds."
        )
        drawing = ExperimentFigure("variance", request.caption(text), variance_panels(panels), commands)
        tables = (
            _success(request, tasks, groups, results),
            _matching(request, tasks, groups, found, results, variance),
        )
        return Outcome(tables, (drawing,))

    return contest.experiment("priors", outcome, lambda run: [EvaluationWork(run, test), variance(run)])


def measure(folder: Path, data: Path, device: torch.device, options: Mapping[str, Any]) -> dict[str, Any]:
    """Variances and survival probabilities per coordinate, on windows of validation episodes."""
    with Trained.open(folder, data, device) as trained:
        windows = trained.windows("validation", options["num_windows"])
        return variance_beside_survival(trained, windows, capacity_probabilities(trained, windows))


def largest_fall(values: Sequence[float]) -> float:
    """How much the values fall at most from one coordinate to the next, the last of them to zero."""
    return max(before - after for before, after in pairwise([*values, 0.0]))


def _mean(found: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """What the figure shows, over seeds; unmasked variances can be many times larger and would hide it."""
    shown = ("masked_variance", "prior_survival", "q_survival")
    return {key: torch.tensor([each[key] for each in found]).mean(0).tolist() for key in shown}


def _success(request: Request, tasks: Sequence[str], groups: Groups, results: Results) -> Table:
    columns = success_columns(request, tasks, PRIORS, groups, results)
    for task in tasks:
        columns[f"{TASK_TITLES[task]} α"] = [
            Cell(f"{groups[task, prior][0].config.model.prior_degree:g}") for prior in PRIORS
        ]
    rows: list[Row] = [[prior, *(column[i] for column in columns.values())] for i, prior in enumerate(PRIORS)]
    how = "α was selected on validation pairs for each." if request.searches else "α is the paper's choice for `ranks`."
    text = f"Test success and planning capacity (mean ± SEM over seeds) of ALeWM, by prior. {how}"
    return Table.of("success", request.caption(text), ["prior", *columns], rows)


def _matching(
    request: Request,
    tasks: Sequence[str],
    groups: Groups,
    found: Mapping[TrainingRun, Mapping[str, Any]],
    results: Results,
    variance: Callable[[TrainingRun], MeasurementWork],
) -> Table:
    rows: list[Row] = []
    for task in tasks:
        for prior in PRIORS:
            runs = groups[task, prior]
            commands = tuple(w.command(results.library) for run in runs for w in (TrainingWork(run), variance(run)))
            variances = [found[run]["masked_variance"] for run in runs]
            rho = found[runs[0]]["prior_survival"]
            distances = [distance_from_survival(each, rho) for each in variances]
            falls = [largest_fall(each) for each in variances]
            cells = [Spread.of(distances).shown(digits=3), f"{largest_fall(rho):.3f}", Spread.of(falls).shown(digits=3)]
            rows.append([TASK_TITLES[task], prior, *(Cell(text, commands=commands) for text in cells)])
    head = ["task", "prior", "|variance - ρ|", "largest fall of ρ", "largest fall of variance"]
    text = (
        "How well the masked latent matches its target: mean distance over coordinates of masked variance from "
        "survival ρ, and the largest fall of each from one coordinate to the next. Mean ± SEM over seeds."
    )
    return Table.of("matching", request.caption(text), head, rows)


RECIPE = Recipe(
    "priors",
    "priors over capacities: over ranks, over values, and without cliffs between blocks",
    build,
    compares_configurations=True,
)
