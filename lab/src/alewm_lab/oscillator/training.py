"""Training an ensemble of the study's models in one batched computation: losses, batches and updates."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from alewm.capacity.support import (
    gumbel_noise,
    log_polynomial_prior,
    mask_of_choice,
    prefix_masks,
    straight_through_choice,
)
from alewm.errors import InputError
from alewm.regularizers.quadrature import random_directions
from alewm.regularizers.sigreg import mix_sigreg, prefix_sigreg, sigreg
from alewm.shapes import Float, Tensor
from alewm_lab.oscillator.models import OscillatorModels, RowAdamW, clip_rows
from alewm_lab.oscillator.study import OscillatorRun
from alewm_lab.oscillator.world import Trajectories


@dataclass(frozen=True)
class Batch:
    """Sequences and the random numbers their step uses."""

    observation: Float[Tensor, "M B F 10"]
    action: Float[Tensor, "M B T 2"]
    directions: Float[Tensor, "M D P"]
    noise: Float[Tensor, "M B C"]


@dataclass(frozen=True)
class EnsembleLosses:
    """Per model: the terms of what is minimised, and the mean of q."""

    prediction: Float[Tensor, "M"]
    regularizer: Float[Tensor, "M"]
    kl: Float[Tensor, "M"]
    mean_q: Float[Tensor, "M C"]


class EnsembleObjective:
    """The loss of models like one run, a method being a composition of the same parts; λ, α and weights may differ."""

    def __init__(self, kind: OscillatorRun, log_prior: Float[Tensor, "M C"]) -> None:
        self.kind, self.log_prior = kind, log_prior
        self.support = kind.support
        self.masks = prefix_masks(self.support)

    def __call__(self, models: OscillatorModels, batch: Batch) -> EnsembleLosses:
        """The terms of the loss on one batch."""
        features, s = models.encode(batch.observation, training=True)
        num_models = s.shape[0]
        by_frame = s.transpose(1, 2)
        u = batch.directions.unsqueeze(1)
        if not self.kind.chooses_capacity:
            nothing = s.new_zeros(num_models)
            prediction = _squared_error(models, s, s, batch.action).mean(1)
            return EnsembleLosses(prediction, sigreg(by_frame, u).mean(1), nothing, s.new_ones(num_models, 1))

        logits = self._logits(models, features)
        q = logits.softmax(-1)
        kl = (q * (logits.log_softmax(-1) - self.log_prior.unsqueeze(1))).sum(-1).mean(1)
        choice = straight_through_choice(logits, batch.noise)
        z = s * mask_of_choice(choice, self.masks).unsqueeze(2)
        if self.kind.control == "marginal":
            every_z = s.unsqueeze(1) * self.masks[:, None, None, :]
            error = _squared_error(models, every_z, s.unsqueeze(1), batch.action.unsqueeze(1))
            prediction = (q.transpose(1, 2) * error).sum(1).mean(1)
        else:
            prediction = _squared_error(models, z, s, batch.action).mean(1)

        if self.kind.method == "nested-dropout":
            regularizer = prefix_sigreg(by_frame, choice.unsqueeze(1), u, self.support).mean(1)
        elif self.kind.method == "alewm-sigreg":
            regularizer = sigreg(z.transpose(1, 2), u).mean(1)
        else:
            prior = self.log_prior.exp().unsqueeze(1)
            regularizer = mix_sigreg(by_frame, q.unsqueeze(1), u, prior, self.support).mean(1)
        return EnsembleLosses(prediction, regularizer, kl, q.detach().mean(1))

    def _logits(self, models: OscillatorModels, features: Tensor) -> Float[Tensor, "M B C"]:
        if self.kind.learns_capacity:
            return models.capacity_logits(features)
        return self.log_prior.unsqueeze(1).expand(-1, features.shape[1], -1)


def _squared_error(
    models: OscillatorModels,
    z: Float[Tensor, "M *batch F D"],
    s: Float[Tensor, "M *#batch F D"],
    action: Float[Tensor, "M *#batch T 2"],
) -> Float[Tensor, " M *batch"]:
    """The mean over transitions and coordinates, one number per sequence.

    The paper prints a sum over coordinates; with it the published weights collapse the latent, and public LeWM
    training takes the mean.
    """
    current = z[..., :-1, :]
    predicted = models.predict(current, action.expand(*current.shape[:-1], action.shape[-1]))
    return (predicted - s[..., 1:, :]).square().mean((-2, -1))


def total(losses: EnsembleLosses, reg_weight: Float[Tensor, "M"], kl_weight: Float[Tensor, "M"]) -> Float[Tensor, "M"]:
    """L = L_pred + λ L_reg, and the optional KL(q || π_0)."""
    return losses.prediction + reg_weight * losses.regularizer + kl_weight * losses.kl


@dataclass(frozen=True)
class History:
    """Means over the batches of every epoch."""

    prediction: Float[Tensor, "M epochs"]
    regularizer: Float[Tensor, "M epochs"]
    mean_q: Float[Tensor, "M epochs C"]


def train(runs: Sequence[OscillatorRun], train_split_of: dict[int, Trajectories]) -> tuple[OscillatorModels, History]:
    """Trained models of `runs`, which must be alike, on the training split of each run's seed.

    Every run has its own streams of batches, directions and noise, keyed by its seed: which runs train beside it
    changes none of them.
    """
    kind = runs[0]
    if any(run.trains_alike != kind.trains_alike for run in runs):
        raise InputError("Only runs of one method, width and schedule train side by side.")
    feed, models = _Feed(runs, train_split_of), OscillatorModels(runs)
    log_prior = torch.stack([log_polynomial_prior(len(run.support), run.prior_degree) for run in runs])
    objective = EnsembleObjective(kind, log_prior)

    def column(name: str) -> Float[Tensor, "M"]:
        return torch.tensor([getattr(run, name) for run in runs])

    reg_weight, kl_weight = column("reg_weight"), column("kl_weight")
    rate, selector_rate, selector_delay = column("learning_rate"), column("selector_rate"), column("selector_delay")
    clip_norm, weight_decay = column("clip_norm"), column("weight_decay")
    trained = [models.model_rows, *([models.selector_rows] if kind.learns_capacity else [])]
    optimizers = [RowAdamW(rows.detach(), weight_decay) for rows in trained]

    num_steps, records = feed.steps_per_epoch * kind.epochs, []
    for epoch in range(kind.epochs):
        in_epoch = []
        for step, batch in enumerate(feed.epoch()):
            losses = objective(models, batch)
            gradients = torch.autograd.grad(total(losses, reg_weight, kl_weight).sum(), trained)
            clip_rows(gradients, clip_norm)
            optimizers[0].step(gradients[0], rate)
            if kind.learns_capacity:
                has_begun = (epoch * feed.steps_per_epoch + step) / num_steps >= selector_delay
                optimizers[1].step(gradients[1], has_begun * rate * selector_rate)
            in_epoch.append(
                torch.cat((losses.prediction[:, None], losses.regularizer[:, None], losses.mean_q), 1).detach()
            )
        records.append(torch.stack(in_epoch).mean(0))
    history = torch.stack(records, 1)
    if not history.isfinite().all():
        broken = [run.name for run, ok in zip(runs, history.isfinite().all(2).all(1), strict=True) if not ok]
        raise FloatingPointError(f"The loss of {', '.join(broken)} is not finite.")
    return models, History(history[..., 0], history[..., 1], history[..., 2:])


class _Feed:
    """Batches of every run from its own generator; the last partial batch of an epoch is dropped."""

    def __init__(self, runs: Sequence[OscillatorRun], split_of: dict[int, Trajectories]) -> None:
        self.kind = runs[0]
        seeds = list(dict.fromkeys(run.seed for run in runs))
        self.row_of = torch.tensor([seeds.index(run.seed) for run in runs]).unsqueeze(1)
        self.observation = torch.stack([split_of[seed].observation for seed in seeds])
        self.action = torch.stack([split_of[seed].action for seed in seeds])
        self.generators = [torch.Generator().manual_seed(10_000 + run.seed) for run in runs]
        self.steps_per_epoch = self.observation.shape[1] // self.kind.batch_size
        if self.steps_per_epoch == 0:
            raise InputError(
                f"{self.observation.shape[1]} training trajectories do not fill a batch of {self.kind.batch_size}."
            )

    def epoch(self) -> list[Batch]:
        """All batches of the next epoch; its random numbers are drawn at once."""
        steps, size = self.steps_per_epoch, self.kind.batch_size
        width, capacities = self.kind.latent_dim, len(self.kind.support)
        order, directions, noise = [], [], []
        for generator in self.generators:
            order.append(torch.randperm(self.observation.shape[1], generator=generator)[: steps * size])
            drawn = random_directions(width, steps * self.kind.num_projections, generator=generator)
            directions.append(drawn.view(width, steps, -1).transpose(0, 1))
            noise.append(gumbel_noise(steps, size, capacities, generator=generator))
        rows = torch.stack(order).view(len(order), steps, size)
        all_directions, all_noise = torch.stack(directions).contiguous(), torch.stack(noise)
        return [
            Batch(
                self.observation[self.row_of, rows[:, step]],
                self.action[self.row_of, rows[:, step]],
                all_directions[:, step],
                all_noise[:, step],
            )
            for step in range(steps)
        ]
