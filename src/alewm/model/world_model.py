"""The world model: encode frames, choose a capacity, predict the next latents and roll them forward."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from alewm.capacity.selector import CapacitySelector
from alewm.capacity.support import CapacitySupport, log_polynomial_prior
from alewm.config import Count, CountOrZero, Finite, check_ranges
from alewm.devices import at_least_float32
from alewm.distributed import mean_across_ranks, num_ranks
from alewm.errors import InputError
from alewm.model.predictor import ActionEncoder, AdaLNBlock, KeyValueCache, Predictor, PredictorConfig
from alewm.model.vit import PixelNormaliser, ViT, ViTConfig
from alewm.shapes import Bool, Float, Tensor

ROWS_IN_CACHE = 1200
"""Candidates imagined at once on a CPU."""


@dataclass(frozen=True)
class SelectorConfig:
    """Shape of the capacity network."""

    num_blocks: CountOrZero = 4
    """Transformer blocks."""
    num_heads: Count = 8
    """Attention heads per block."""
    mlp_dim: Count = 768
    """Hidden width of each block's MLP."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class WorldModelConfig:
    """Everything that decides the parameters of a world model."""

    latent_dim: Count = 192
    """Width D of the latent, at most the encoder's width W."""
    capacities: tuple[int, ...] = (8, 16, 32, 64, 96, 128, 160, 192)
    """Support 𝒦: increasing capacities that end in the latent width."""
    prior_degree: Finite = 0.0
    """Degree α of the capacity prior; positive favours small capacities."""
    has_selector: bool = True
    """Whether capacities are chosen by a network; without one, q is the prior."""
    action_dim: Count = 10
    """Numbers in one action block: the task's action width times the frame skip."""
    projector_dim: Count = 2048
    """Hidden width of both projectors."""
    encoder: ViTConfig = field(default_factory=ViTConfig)
    """Image encoder."""
    predictor: PredictorConfig = field(default_factory=PredictorConfig)
    """Latent predictor."""
    selector: SelectorConfig = field(default_factory=SelectorConfig)
    """Capacity network, where there is one."""

    def __post_init__(self) -> None:
        check_ranges(self)
        _ = self.support
        if self.latent_dim > self.encoder.hidden_dim:
            raise InputError(
                f"The latent ({self.latent_dim}) must not be wider than the encoder ({self.encoder.hidden_dim})."
            )
        if self.has_selector and self.encoder.hidden_dim % self.selector.num_heads:
            raise InputError(
                f"The selector's {self.selector.num_heads} heads do not divide the encoder's width of "
                f"{self.encoder.hidden_dim}."
            )

    @property
    def support(self) -> CapacitySupport:
        """The capacities, checked."""
        return CapacitySupport(self.capacities).of_width(self.latent_dim)


class BatchNorm(nn.Module):
    """`nn.BatchNorm1d` with moments averaged over ranks inside autograd.

    The library's own synchronised layer refuses CPUs. In one process this one computes what `nn.BatchNorm1d` does, and
    its parameters and buffers have the same names. Moments are float32 whatever the input is.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, width: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Float[Tensor, "N W"]) -> Float[Tensor, "N W"]:
        """x normalised by the batch's moments while training, by the running ones otherwise."""
        if self.training:
            self.num_batches_tracked.add_(1)
            if num_ranks() > 1:
                return self._normalise_across_ranks(x)
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.momentum, self.eps
        )

    def _normalise_across_ranks(self, x: Tensor) -> Tensor:
        wide = at_least_float32(x)
        mean = mean_across_ranks(wide.mean(0))
        centred = wide - mean
        var = mean_across_ranks(centred.square().mean(0))
        with torch.no_grad():
            n = len(x) * num_ranks()
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_((var * (n / (n - 1))).to(self.running_var.dtype), self.momentum)
        return (centred * torch.rsqrt(var + self.eps) * self.weight + self.bias).to(x.dtype)


class Projector(nn.Module):
    """Linear, BatchNorm, GELU, Linear, on the features of every frame of every window together."""

    def __init__(self, input_dim: int, hidden_dim: int, output_dim: int) -> None:
        super().__init__()
        self.widen = nn.Linear(input_dim, hidden_dim)
        self.norm = BatchNorm(hidden_dim)
        self.narrow = nn.Linear(hidden_dim, output_dim)

    def forward(self, x: Float[Tensor, "B F W"], num_outputs: int | None = None) -> Float[Tensor, "B F D"]:
        """The first `num_outputs` coordinates of the projection (all by default)."""
        hidden = F.gelu(self.norm(self.widen(x.flatten(0, 1))))
        latents = F.linear(hidden, self.narrow.weight[:num_outputs], self.narrow.bias[:num_outputs])
        return latents.view(*x.shape[:2], -1)


class Encoding(NamedTuple):
    """Features and latents of each frame."""

    features: Float[Tensor, "B F W"]
    """The encoder's CLS tokens, which the selector reads."""
    latents: Float[Tensor, "B F D"]
    """The latents s, which the predictor continues."""


class WorldModel(nn.Module):
    """Encoder, projectors, action encoder, predictor and, where the method has one, the capacity network.

    Owns no optimizer, device or file, and draws no random numbers after construction.
    """

    log_prior: Tensor

    def __init__(self, config: WorldModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.encoder.hidden_dim
        self.normalise = PixelNormaliser(config.encoder.image_size)
        self.encoder = ViT(config.encoder)
        self.projector = Projector(width, config.projector_dim, config.latent_dim)
        self.action_encoder = ActionEncoder(config.action_dim, width)
        self.predictor = Predictor(config.predictor, config.latent_dim, width)
        self.prediction_projector = Projector(width, config.projector_dim, config.latent_dim)
        self.selector = (
            CapacitySelector(
                config.support,
                width,
                prior_degree=config.prior_degree,
                num_blocks=config.selector.num_blocks,
                num_heads=config.selector.num_heads,
                mlp_dim=config.selector.mlp_dim,
            )
            if config.has_selector
            else None
        )
        log_prior = log_polynomial_prior(len(config.support), config.prior_degree)
        self.register_buffer("log_prior", log_prior, persistent=False)

    @property
    def support(self) -> CapacitySupport:
        """The capacities this model may use."""
        return self.config.support

    @property
    def action_dim(self) -> int:
        return self.config.action_dim

    @property
    def image_size(self) -> int:
        """Pixels per side of the images that the encoder reads."""
        return self.config.encoder.image_size

    @property
    def context_length(self) -> int:
        """Most positions the predictor sees at once."""
        return self.config.predictor.context_length

    def encode(self, pixels: Tensor) -> Encoding:
        """Features and latents of every frame; `pixels` as `PixelNormaliser` takes them."""
        tokens = self.tokens(pixels)
        features = self.encoder.read(tokens).view(*pixels.shape[:2], -1)
        return Encoding(features, self.projector(features))

    def tokens(self, pixels: Tensor) -> Float[Tensor, "N L W"]:
        """Input tokens of the encoder's blocks for every frame of every window."""
        return self.encoder.embed(self.normalise(pixels).flatten(0, 1))

    def predict(
        self,
        z: Float[Tensor, "B T D"],
        actions: Float[Tensor, "B T A"],
        *,
        keep: Bool[Tensor, "B draws"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The latent after each position, given it and those before it, and the action blocks that leave them.

        `keep` holds the dropout decisions (`Predictor.forward`); without it nothing is dropped.
        """
        predicted: Tensor = self.prediction_projector(self.predictor(z, self.action_encoder(actions), keep))
        return predicted

    def predict_prefix(
        self, z: Float[Tensor, "B T k"], actions: Float[Tensor, "B T A"], width: int
    ) -> Float[Tensor, "B width"]:
        """The first `width` coordinates of the latent after the last position, from latents zero beyond the k-th.

        Equals `predict` on the zero-padded latents up to rounding, without computing the other coordinates.
        """
        hidden = self.predictor(z, self.action_encoder(actions))[:, -1:]
        predicted: Tensor = self.prediction_projector(hidden, width)[:, 0]
        return predicted

    def imagine_prefix(
        self, z_first: Float[Tensor, "N k"], actions: Float[Tensor, "N H A"], last_width: int, context: int
    ) -> list[Float[Tensor, "N _"]]:
        """The H latents that follow `z_first`, each predicted from the latest `context`; k coordinates, the last more.

        Equals `predict_prefix` called step by step, up to rounding.
        """
        # On a CPU, parts that stay in its cache take a quarter less time than all rows at once.
        num_rows = ROWS_IN_CACHE if z_first.device.type == "cpu" else max(1, len(z_first))
        parts = [
            self._imagine(z, a, last_width, context)
            for z, a in zip(torch.split(z_first, num_rows), torch.split(actions, num_rows), strict=True)
        ]
        return parts[0] if len(parts) == 1 else [torch.cat(step) for step in zip(*parts, strict=True)]

    def _imagine(
        self, z_first: Float[Tensor, "N k"], actions: Float[Tensor, "N H A"], last_width: int, context: int
    ) -> list[Float[Tensor, "N _"]]:
        """`imagine_prefix` of all rows at once.

        Keys and values are cached while the history grows. Once it slides, all positions have moved and are recomputed.
        The last block computes only the last position, and every action block is encoded once.
        """
        predictor = self.predictor
        if not 1 <= context <= self.context_length:
            raise InputError(f"The predictor sees 1 to {self.context_length} positions, got {context}.")
        capacity, horizon = z_first.shape[1], actions.shape[1]
        activated = F.silu(self.action_encoder(actions))
        embedded = [predictor.embed(z_first[:, None])]
        caches: list[KeyValueCache | None] = [None] * len(predictor.blocks)
        latents: list[Tensor] = []
        for t in range(horizon):
            if t < context:
                seen, place = slice(t, t + 1), slice(t, t + 1)
            else:
                seen, place = slice(t + 1 - context, t + 1), slice(0, context)
                caches = [None] * len(predictor.blocks)
            x = torch.cat(embedded[seen], 1) + predictor.position[:, place]
            for i, block in enumerate(predictor.blocks):
                assert isinstance(block, AdaLNBlock)
                num_outputs = 1 if i == len(predictor.blocks) - 1 else x.shape[1]
                x, caches[i] = block.extend(x, activated[:, seen], caches[i], num_outputs)
            is_last = t == horizon - 1
            z = self.prediction_projector(predictor.norm(x), last_width if is_last else capacity)
            latents.append(z[:, 0])
            if not is_last:
                embedded.append(predictor.embed(z))
        return latents

    def capacity_logits(self, features: Float[Tensor, "B F W"]) -> Float[Tensor, "B C"]:
        """Logits of q(k | frames), in float32; those of the prior where the model has no selector."""
        if self.selector is None:
            return self.log_prior.expand(len(features), -1)
        return at_least_float32(self.selector(features))


@contextmanager
def _initialised_by(generator: torch.Generator) -> Iterator[None]:
    # The library's layers draw their first weights from the global generator: seed it temporarily, then restore it.
    borrowed = torch.default_generator.get_state()
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(borrowed)


def build_world_model(config: WorldModelConfig, generator: torch.Generator) -> WorldModel:
    """A world model on the CPU whose first weights depend on `generator` alone."""
    with _initialised_by(generator):
        return WorldModel(config)
