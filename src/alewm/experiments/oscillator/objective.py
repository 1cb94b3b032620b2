"""The loss of every model of an ensemble, as named terms; a method is a composition of the same parts."""

from dataclasses import dataclass

from alewm.capacity.gumbel import straight_through_choice
from alewm.capacity.prefix import mask_of_choice, prefix_masks
from alewm.experiments.oscillator.config import OscillatorRun
from alewm.experiments.oscillator.models import OscillatorModels
from alewm.regularizers.mix_sigreg import mix_sigreg
from alewm.regularizers.prefix_sigreg import prefix_sigreg
from alewm.regularizers.sigreg import sigreg
from alewm.shapes import Float, Tensor


@dataclass(frozen=True)
class Batch:
    """Sequences and the random numbers their step uses."""

    observation: Float[Tensor, "M B F 10"]
    action: Float[Tensor, "M B T 2"]
    directions: Float[Tensor, "M D P"]
    noise: Float[Tensor, "M B C"]


@dataclass(frozen=True)
class Losses:
    """Per model: what is minimised, its terms, and the mean of q."""

    prediction: Float[Tensor, "M"]
    regularizer: Float[Tensor, "M"]
    kl: Float[Tensor, "M"]
    mean_q: Float[Tensor, "M C"]


class Objective:
    """Prediction and regularization for runs of one kind; λ, α and weights may differ between them."""

    def __init__(self, runs: list[OscillatorRun], log_prior: Float[Tensor, "M C"]) -> None:
        self.kind = runs[0]
        self.support = self.kind.support
        self.log_prior = log_prior
        self.masks = prefix_masks(self.support, device=log_prior.device)

    def __call__(self, models: OscillatorModels, batch: Batch) -> Losses:
        """Both terms of the loss on one batch."""
        features, s = models.encode(batch.observation, training=True)
        num_models = s.shape[0]
        by_frame = s.transpose(1, 2)
        u = batch.directions.unsqueeze(1)
        if not self.kind.chooses_capacity:
            nothing = s.new_zeros(num_models)
            prediction = _squared_error(models, s, s, batch.action).mean(1)
            return Losses(prediction, sigreg(by_frame, u).mean(1), nothing, s.new_ones(num_models, 1))

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
        return Losses(prediction, regularizer, kl, q.detach().mean(1))

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


def total(losses: Losses, reg_weight: Float[Tensor, "M"], kl_weight: Float[Tensor, "M"]) -> Float[Tensor, "M"]:
    """L = L_pred + λ L_reg, and the optional KL(q || π_0)."""
    return losses.prediction + reg_weight * losses.regularizer + kl_weight * losses.kl
