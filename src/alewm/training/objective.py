"""The total loss as a sum of named terms; the four methods are compositions of the same terms.

| method           | capacity while training      | regularizer                                      |
|------------------|------------------------------|--------------------------------------------------|
| `lewm`           | always D                     | SIGReg on the latent                             |
| `alewm`          | sampled from q(k given w)    | MixSIGReg, marginal over q                       |
| `alewm-sigreg`   | sampled from q(k given w)    | SIGReg on the masked latent the predictor saw    |
| `nested-dropout` | sampled from the fixed prior | SIGReg on the active prefix only                 |
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from alewm.capacity.support import mask_of_choice, prefix_masks, straight_through_choice
from alewm.devices import at_least_float32, full_precision
from alewm.model.world_model import WorldModel, WorldModelConfig
from alewm.regularizers.sigreg import MixSIGReg, PrefixSIGReg, SIGReg
from alewm.shapes import Float, Tensor
from alewm.training.config import ObjectiveConfig, check_fit
from alewm.training.random_streams import StepNoise


class Losses(NamedTuple):
    """One evaluation of the objective."""

    total: Float[Tensor, ""]
    """The total loss of this rank's windows."""
    terms: dict[str, Tensor]
    """Each term before its weight."""
    q: Float[Tensor, "B C"]
    """Capacity probabilities of each window, detached."""
    latents: Float[Tensor, "B F D"]
    """Latents of each window, detached."""


class _Sampled(NamedTuple):
    """Inputs of the regularizers."""

    s: Tensor
    q: Tensor
    choice: Tensor
    mask: Tensor


class Objective(nn.Module):
    """The loss of a batch of windows, for one method; has no parameters."""

    masks: Tensor

    def __init__(self, config: ObjectiveConfig, model_config: WorldModelConfig) -> None:
        super().__init__()
        check_fit(config, model_config)
        self.config = config
        self.register_buffer("masks", prefix_masks(model_config.support), persistent=False)
        support, degree, P = model_config.support, model_config.prior_degree, config.num_projections
        self.statistic: nn.Module
        if config.method == "alewm":
            self.statistic = MixSIGReg(support, degree, P, directions=config.directions)
        elif config.method == "nested-dropout":
            self.statistic = PrefixSIGReg(support, P)
        elif config.masked_sigreg == "marginal":
            self.statistic = MixSIGReg(support, degree, P, target="gaussian")
        else:
            self.statistic = SIGReg(P)
        self._arguments: Callable[[_Sampled], tuple[Tensor, ...]] = _ARGUMENTS[type(self.statistic)]

    def forward(
        self, model: WorldModel, pixels: Tensor, actions: Tensor, noise: StepNoise, directions: torch.Generator
    ) -> Losses:
        """The total loss and its terms; the mean over windows, positions and coordinates, as LeWM's.

        `pixels` are the F frames of each window, `actions` the normalised action blocks [B, F - 1, A] between them.
        """
        config = self.config
        features, latents = model.encode(pixels)
        s = at_least_float32(latents)
        logits = model.capacity_logits(features)
        if config.freezes_selector:
            logits = logits.detach()
        q = logits.softmax(-1)
        with full_precision(s.device):
            choice = straight_through_choice(logits, noise.gumbel.to(logits.dtype), config.temperature)
            masks = self.masks.to(choice.dtype)
            sampled = _Sampled(s, q, choice, mask_of_choice(choice, masks))
        if config.marginalises_capacity:
            prediction = self._marginal_prediction(model, s, q, masks, actions, noise.keep)
        else:
            prediction = self._prediction(model, s, sampled.mask, actions, noise.keep).mean()
        terms = {
            "prediction": prediction,
            "regularizer": self.statistic(*self._arguments(sampled), sample_axis=0, generator=directions),
        }
        total = prediction + config.regularizer_weight * terms["regularizer"]
        if config.prior_weight:
            terms["prior_divergence"] = (q * (logits.log_softmax(-1) - model.log_prior)).sum(-1).mean()
            total = total + config.prior_weight * terms["prior_divergence"]
        return Losses(total, {name: term.detach() for name, term in terms.items()}, q.detach(), s.detach())

    def _prediction(
        self, model: WorldModel, s: Tensor, mask: Tensor, actions: Tensor, keep: Tensor | None
    ) -> Float[Tensor, "B"]:
        """Squared prediction error per window, predicted from the masked latents."""
        s_hat, target = at_least_float32(model.predict(s[:, :-1] * mask[:, None], actions, keep=keep)), s[:, 1:]
        # The mask only says which coordinates count: a gradient through it would reward short prefixes for being short.
        active = mask.detach()
        if self.config.prediction_target == "detached":
            # Coordinates beyond the prefix are predicted, but get no gradient as targets.
            target = torch.where(active[:, None] > 0, target, target.detach())
        error = (s_hat - target).square()
        if self.config.prediction_target != "prefix":
            return error.mean((1, 2))
        return (error.mean(1) * active).sum(-1) / active.sum(-1)

    def _marginal_prediction(
        self, model: WorldModel, s: Tensor, q: Tensor, masks: Tensor, actions: Tensor, keep: Tensor | None
    ) -> Float[Tensor, ""]:
        """Σ_k q(k | w) times the error at capacity k: the expectation that sampling estimates.

        All capacities of a window share its dropout decisions, and all pass one batch normalisation.
        """
        B, C = q.shape

        def per_capacity(rows: Tensor) -> Tensor:
            return rows.repeat_interleave(C, dim=0)

        keep = None if keep is None else per_capacity(keep)
        masks = masks.to(s.dtype).expand(B, -1, -1).flatten(0, 1)
        error = self._prediction(model, per_capacity(s), masks, per_capacity(actions), keep)
        return (q * error.view(B, C)).sum(-1).mean()


_ARGUMENTS: dict[type[nn.Module], Callable[[_Sampled], tuple[Tensor, ...]]] = {
    # For LeWM the mask is all ones, so that "the masked latent" is the latent.
    SIGReg: lambda sampled: (sampled.s * sampled.mask[:, None],),
    MixSIGReg: lambda sampled: (sampled.s, sampled.q),
    PrefixSIGReg: lambda sampled: (sampled.s, sampled.choice.detach()),
}
