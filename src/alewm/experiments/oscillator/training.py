"""Training an ensemble of the study's models, all in one batched computation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from alewm.capacity.gumbel import gumbel_noise
from alewm.capacity.prior import log_polynomial_prior
from alewm.errors import InputError
from alewm.experiments.oscillator.config import OscillatorRun
from alewm.experiments.oscillator.data import Trajectories
from alewm.experiments.oscillator.ensemble import RowAdamW, clip_rows
from alewm.experiments.oscillator.models import OscillatorModels
from alewm.experiments.oscillator.objective import Batch, Objective, total
from alewm.regularizers.slices import random_directions
from alewm.shapes import Float, Tensor


@dataclass(frozen=True)
class History:
    """Means over the batches of every epoch."""

    prediction: Float[Tensor, "M epochs"]
    regularizer: Float[Tensor, "M epochs"]
    mean_q: Float[Tensor, "M epochs C"]


def train(
    runs: Sequence[OscillatorRun],
    train_split_of: dict[int, Trajectories],
    *,
    device: torch.device | str = "cpu",
) -> tuple[OscillatorModels, History]:
    """Trained models of `runs`, which must be alike, on the training split of each run's seed.

    Every run has its own streams of batches, directions and noise, keyed by its seed: which runs train beside it
    changes none of them.
    """
    kind = runs[0]
    if any(run.trains_alike != kind.trains_alike for run in runs):
        raise InputError("Only runs of one method, width and schedule train side by side.")
    device = torch.device(device)
    feed = _Feed(runs, train_split_of, device)
    models = OscillatorModels(runs, device)
    log_prior = torch.stack([log_polynomial_prior(len(run.support), run.prior_degree) for run in runs]).to(device)
    objective = Objective(list(runs), log_prior)

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, device=device)

    reg_weight, kl_weight = column([r.reg_weight for r in runs]), column([r.kl_weight for r in runs])
    rate, selector_rate = column([r.learning_rate for r in runs]), column([r.selector_rate for r in runs])
    selector_delay = column([r.selector_delay for r in runs])
    clip_norm, weight_decay = column([r.clip_norm for r in runs]), column([r.weight_decay for r in runs])
    trained = [models.model_rows, *([models.selector_rows] if kind.learns_capacity else [])]
    optimizers = [RowAdamW(rows.detach(), weight_decay) for rows in trained]

    num_steps, records = feed.steps_per_epoch * kind.epochs, []
    for epoch in range(kind.epochs):
        in_epoch = []
        for step, batch in enumerate(feed.epoch()):
            losses = objective(models, batch)
            gradients = torch.autograd.grad(total(losses, reg_weight, kl_weight).sum(), trained)
            clip_rows(gradients, clip_norm)
            progress = (epoch * feed.steps_per_epoch + step) / num_steps
            factor = _cosine(progress) if kind.anneal else 1.0
            started = (progress >= selector_delay).to(rate.dtype)
            optimizers[0].step(gradients[0], factor * rate)
            if kind.learns_capacity:
                optimizers[1].step(gradients[1], factor * started * rate * selector_rate)
            in_epoch.append(
                torch.cat((losses.prediction[:, None], losses.regularizer[:, None], losses.mean_q), 1).detach()
            )
        records.append(torch.stack(in_epoch).mean(0))
    history = torch.stack(records, 1).cpu()
    if not history.isfinite().all():
        broken = [run.name for run, ok in zip(runs, history.isfinite().all(2).all(1), strict=True) if not ok]
        raise FloatingPointError(f"The loss of {', '.join(broken)} is not finite.")
    return models, History(history[..., 0], history[..., 1], history[..., 2:])


def _cosine(progress: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * progress))


class _Feed:
    """Batches of every run from its own generator; the last partial batch of an epoch is dropped."""

    def __init__(self, runs: Sequence[OscillatorRun], split_of: dict[int, Trajectories], device: torch.device) -> None:
        self.kind, self.device = runs[0], device
        seeds = list(dict.fromkeys(run.seed for run in runs))
        self.row_of = torch.tensor([seeds.index(run.seed) for run in runs], device=device).unsqueeze(1)
        self.observation = torch.stack([split_of[seed].observation for seed in seeds]).to(device)
        self.action = torch.stack([split_of[seed].action for seed in seeds]).to(device)
        self.generators = [torch.Generator().manual_seed(10_000 + run.seed) for run in runs]
        self.steps_per_epoch = self.observation.shape[1] // self.kind.batch_size
        if self.steps_per_epoch == 0:
            raise InputError(
                f"{self.observation.shape[1]} training trajectories do not fill a batch of {self.kind.batch_size}."
            )

    def epoch(self) -> "list[Batch]":
        """All batches of the next epoch; its random numbers are drawn at once and moved together."""
        steps, size = self.steps_per_epoch, self.kind.batch_size
        width, capacities = self.kind.latent_dim, len(self.kind.support)
        order, directions, noise = [], [], []
        for generator in self.generators:
            order.append(torch.randperm(self.observation.shape[1], generator=generator)[: steps * size])
            drawn = random_directions(width, steps * self.kind.num_projections, generator=generator)
            directions.append(drawn.view(width, steps, -1).transpose(0, 1))
            noise.append(gumbel_noise(steps, size, capacities, generator=generator))
        rows = torch.stack(order).view(len(order), steps, size).to(self.device)
        all_directions = torch.stack(directions).contiguous().to(self.device)
        all_noise = torch.stack(noise).to(self.device)
        return [
            Batch(
                self.observation[self.row_of, rows[:, step]],
                self.action[self.row_of, rows[:, step]],
                all_directions[:, step],
                all_noise[:, step],
            )
            for step in range(steps)
        ]
