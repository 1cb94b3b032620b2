"""Gradients to the selector through a discrete choice: straight-through, exact, and by score function."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from alewm.capacity.prefix import TEMPERATURE, gumbel_noise, mask_of_choice, prefix_masks, straight_through_choice
from alewm.evaluation.held_out import SAMPLE_SEED, EncodedWindows, Trained
from alewm.evaluation.statistics import Spread
from alewm.model.world_model import WorldModel
from alewm.shapes import Float, Tensor
from alewm.sweeps.library import EvaluationWork, TrainingRun, TrainingWork, Work
from alewm.tables import Cell, Row, Table
from alewm_lab.experiments.contest import Groups, success_columns
from alewm_lab.experiments.experiment import Experiment, MeasurementWork, Outcome, Recipe, Results
from alewm_lab.experiments.request import TASK_TITLES, Request
from alewm_lab.experiments.theory import forced_losses

ESTIMATORS = ("straight-through", "leave-one-out, 2 samples", "leave-one-out, 4 samples")
TRAINED = {"straight-through (the paper's)": {}, "exact marginal": {"objective.marginalises_capacity": True}}
"""What models are trained with, as changes to the paper's configuration."""


def build(request: Request) -> Experiment:
    """Models trained with the sampled and with the exact expectation; gradients of all estimators on one batch."""
    (width,) = request.widths(192)
    tasks = request.tasks(*TASK_TITLES)
    groups: dict[tuple[str, str], tuple[TrainingRun, ...]] = {
        (task, name): request.over_seeds(request.alewm, task, width, changes=changes)
        for task in tasks
        for name, changes in TRAINED.items()
    }
    test = request.scale.evaluation()
    options = (("num_windows", 32 if request.is_smoke else 128), ("num_draws", 16 if request.is_smoke else 512))
    sampled = [run for (_, name), group in groups.items() if name == next(iter(TRAINED)) for run in group]
    measured = {
        run: MeasurementWork(run, "estimators", measure, options, request.command("estimators")) for run in sampled
    }

    def outcome(results: Results) -> Outcome:
        rows: list[Row] = []
        for task in tasks:
            runs = groups[task, next(iter(TRAINED))]
            found = [results.measured(measured[run]) for run in runs]
            commands = tuple(w.command(results.library) for run in runs for w in (TrainingWork(run), measured[run]))
            for estimator in ESTIMATORS:
                cells = [
                    Cell(Spread.of([each[estimator][key] for each in found]).shown(digits=3), commands=commands)
                    for key in ("bias", "bias_noise", "deviation", "cosine")
                ]
                rows.append([TASK_TITLES[task], estimator, *cells])
        head = ["task", "estimator", "bias", "bias by chance", "deviation of one draw", "cosine of the mean"]
        text = (
            "Gradient of the expected one-step prediction error of a fixed batch with respect to the selector's "
            "logits, at the trained model, relative to the norm of the exact gradient: distance of the mean over "
            "draws from it, how large that distance would be by chance for an unbiased estimator, root-mean-square "
            "deviation of one draw from the mean, and cosine between the mean and the exact gradient. Mean ± SEM "
            "over seeds."
        )
        tables = (Table.of("gradients", request.caption(text), head, rows), _success(request, tasks, groups, results))
        return Outcome(tables)

    works: list[Work] = [EvaluationWork(run, test) for group in groups.values() for run in group]
    works += list(measured.values())
    every = tuple(run for group in groups.values() for run in group)
    return Experiment("estimators", request, every, outcome, tuple(works))


def _success(request: Request, tasks: tuple[str, ...], groups: Groups, results: Results) -> Table:
    columns = success_columns(request, tasks, list(TRAINED), groups, results)
    rows: list[Row] = [[name, *(column[index] for column in columns.values())] for index, name in enumerate(TRAINED)]
    text = (
        "Test success and planning capacity (mean ± SEM over seeds) of ALeWM trained with the sampled capacity and "
        "with the exact expectation over all capacities, which costs as many predictions per update as there are "
        "capacities."
    )
    return Table.of("results", request.caption(text), ["trained with", *columns], rows)


def measure(folder: Path, data: Path, device: torch.device, options: Mapping[str, Any]) -> dict[str, Any]:
    """Bias and deviation of every estimator on one batch of validation windows."""
    with Trained.open(folder, data, device) as trained:
        model, windows = trained.model, trained.windows("validation", options["num_windows"])
        with torch.no_grad():
            logits = model.capacity_logits(windows.features.to(device)).float()
        masks = prefix_masks(model.support, device=device)
        losses = (forced_losses(model, windows, masks) / model.config.latent_dim).to(device)
        exact = exact_gradient(logits, losses)
        generator = torch.Generator(device).manual_seed(SAMPLE_SEED)
        found = {}
        for estimator in ESTIMATORS:
            if estimator == "straight-through":
                draws = [
                    _straight_through(model, windows, logits, masks, generator) for _ in range(options["num_draws"])
                ]
            else:
                num_samples = int(estimator.split()[1])
                draws = [leave_one_out(logits, losses, num_samples, generator) for _ in range(options["num_draws"])]
            found[estimator] = _described(torch.stack(draws), exact)
    return found


def exact_gradient(logits: Float[Tensor, "B C"], losses: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
    """The gradient of the mean over windows of Σ_c softmax(logits)_c losses_c."""
    q = logits.softmax(-1)
    return q * (losses - (q * losses).sum(-1, keepdim=True)) / len(logits)


def leave_one_out(
    logits: Float[Tensor, "B C"], losses: Float[Tensor, "B C"], num_samples: int, generator: torch.Generator
) -> Float[Tensor, "B C"]:
    """One draw of the score-function estimate with the other samples' mean loss as baseline; unbiased."""
    q = logits.softmax(-1)
    drawn = torch.multinomial(q, num_samples, replacement=True, generator=generator)
    seen = losses.gather(-1, drawn)
    baseline = (seen.sum(-1, keepdim=True) - seen) / (num_samples - 1)
    scores = torch.nn.functional.one_hot(drawn, q.shape[-1]) - q[:, None]
    estimate: Tensor = ((seen - baseline)[..., None] * scores).mean(1) / len(logits)
    return estimate


def _straight_through(
    model: WorldModel, windows: EncodedWindows, logits: Tensor, masks: Tensor, generator: torch.Generator
) -> Tensor:
    """One draw of the training's own estimate."""
    device = logits.device
    leaf = logits.clone().requires_grad_()
    noise = gumbel_noise(*logits.shape, generator=generator)
    mask = mask_of_choice(straight_through_choice(leaf, noise, TEMPERATURE), masks)
    s = windows.latents.to(device)
    error = (model.predict(s[:, :-1] * mask[:, None], windows.actions.to(device)).float() - s[:, 1:]).square()
    (gradient,) = torch.autograd.grad(error.mean((1, 2)).mean(), leaf)
    return gradient


def _described(draws: Float[Tensor, "n B C"], exact: Float[Tensor, "B C"]) -> dict[str, float]:
    scale = exact.norm()
    mean = draws.mean(0)
    deviation = (draws - mean).flatten(1).square().sum(-1).mean().sqrt()
    return {
        "bias": ((mean - exact).norm() / scale).item(),
        "bias_noise": (deviation / len(draws) ** 0.5 / scale).item(),
        "deviation": (deviation / scale).item(),
        "cosine": torch.nn.functional.cosine_similarity(mean.flatten(), exact.flatten(), dim=0).item(),
    }


RECIPE = Recipe("estimators", "gradients to the selector: straight-through, exact, leave-one-out; and results", build)
