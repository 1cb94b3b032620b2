"""The total loss as a sum of named terms; a method is a composition of them, never another loop.

| method           | capacity while training      | regularizer                                      |
|------------------|------------------------------|--------------------------------------------------|
| `lewm`           | always D                     | SIGReg on the latent                             |
| `alewm`          | sampled from q(k given w)    | MixSIGReg, marginal over q                       |
| `alewm-sigreg`   | sampled from q(k given w)    | SIGReg on the masked latent the predictor saw    |
| `nested-dropout` | sampled from the fixed prior | SIGReg on the active prefix only                 |
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import nn

from alewm.capacity.prefix import TEMPERATURE, mask_of_choice, prefix_masks, straight_through_choice
from alewm.config import ADDED_LATER, Count, NotNegative, Positive, check_ranges
from alewm.devices import at_least_float32, full_precision
from alewm.errors import InputError
from alewm.model.world_model import WorldModel, WorldModelConfig
from alewm.regularizers.mix_sigreg import MixSIGReg
from alewm.regularizers.prefix_sigreg import PrefixSIGReg
from alewm.regularizers.quadrature import Directions
from alewm.regularizers.sigreg import SIGReg
from alewm.shapes import Float, Tensor
from alewm.training.noise import StepNoise

Method = Literal["lewm", "alewm", "alewm-sigreg", "nested-dropout"]
LEARNS_CAPACITY = ("alewm", "alewm-sigreg")


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is minimised."""

    method: Method = "alewm"
    """Which composition of capacity choice and regularizer."""
    regularizer_weight: NotNegative = 0.09
    """Weight λ of the regularizer."""
    num_projections: Count = 1024
    """Random directions P of the regularizer."""
    temperature: Positive = TEMPERATURE
    """Temperature η of the straight-through choice."""
    prediction_target: Literal["full", "prefix", "detached"] = "full"
    """What is predicted: the whole next latent, its active prefix only, or the whole with no gradient beyond the
    active prefix."""
    marginalises_capacity: bool = False
    """Predict at every capacity and weigh by q, instead of sampling one; costs C predictions."""
    prior_weight: NotNegative = 0.0
    """Weight of KL(q || prior); the paper has none."""
    freezes_selector: bool = False
    """Leave q where it begins, at the prior."""
    masked_sigreg: Literal["sampled", "marginal"] = "sampled"
    """For `alewm-sigreg`: SIGReg of the sampled masked latent, or of its mixture under q."""
    directions: Directions = field(default="sphere", metadata=ADDED_LATER)
    """For `alewm`: directions of MixSIGReg anywhere, as in the paper, or an equal share inside every prefix."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.method not in LEARNS_CAPACITY:
            for name, default in (("marginalises_capacity", False), ("prior_weight", 0.0), ("freezes_selector", False)):
                if getattr(self, name) != default:
                    raise InputError(f"{name} has no effect with the method {self.method!r}, which learns no capacity.")
        if self.method != "alewm-sigreg" and self.masked_sigreg != "sampled":
            raise InputError(f"masked_sigreg has no effect with the method {self.method!r}.")
        if self.method == "lewm" and self.prediction_target != "full":
            raise InputError(
                "prediction_target has no effect with the method 'lewm', whose prefix is the whole latent."
            )
        if self.method != "alewm" and self.directions != "sphere":
            raise InputError(f"directions has no effect with the method {self.method!r}.")


class Losses(NamedTuple):
    """One evaluation of the objective."""

    total: Float[Tensor, ""]
    """What is minimised, from this rank's windows."""
    terms: dict[str, Tensor]
    """Each term before its weight."""
    q: Float[Tensor, "B C"]
    """Capacity probabilities of each window, detached."""
    latents: Float[Tensor, "B F D"]
    """Latents of each window, detached."""


class _Sampled(NamedTuple):
    """What a regularizer may look at."""

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
        self.config, self.prefixes = config, model_config.prefixes
        self.register_buffer("masks", prefix_masks(model_config.support), persistent=False)
        support, degree, P = model_config.support, model_config.prior_degree, config.num_projections
        self.statistic: nn.Module
        if config.method == "alewm":
            self.statistic = MixSIGReg(support, degree, P, prior=model_config.prior, directions=config.directions)
        elif config.method == "nested-dropout":
            self.statistic = PrefixSIGReg(support, P)
        elif config.masked_sigreg == "marginal":
            self.statistic = MixSIGReg(support, degree, P, prior=model_config.prior, target="gaussian")
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
            masks = (self.masks if noise.place is None else self.prefixes.masks(noise.place)).to(choice.dtype)
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
        """The squared error of each window's predictions from the latents its mask leaves."""
        s_hat, target = at_least_float32(model.predict(s[:, :-1] * mask[:, None], actions, keep=keep)), s[:, 1:]
        # The mask only says which coordinates count: a gradient through it would reward short prefixes for being short.
        active = mask.detach()
        if self.config.prediction_target == "detached":
            # What lies beyond the prefix is foreseen, but not trained to be foreseeable.
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


def check_fit(config: ObjectiveConfig, model: WorldModelConfig) -> None:
    """Refuses a model that lacks what the method needs, or has what it cannot use."""
    learns = config.method in LEARNS_CAPACITY
    if learns != model.has_selector:
        expected = "a selector" if learns else "no selector"
        raise InputError(f"The method {config.method!r} needs a model with {expected} (has_selector={learns}).")
    if model.prefixes.drawn and not learns:
        raise InputError(
            f"The prior 'smooth' needs a method that learns its capacity, not {config.method!r}; choose the prior "
            f"'ranks' or 'values'."
        )
    if config.method == "lewm" and len(model.capacities) > 1:
        raise InputError(
            f"The method 'lewm' always uses the whole latent: its support is ({model.latent_dim},), "
            f"got {model.capacities}."
        )
