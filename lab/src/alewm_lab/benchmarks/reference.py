"""What fast paths are measured against: LeWM as it is documented, written plainly and run operation by operation.

Bfloat16 autocast, the encoder of `transformers` where it is installed, SIGReg by its definition, CEM for one episode at
a time with the whole history recomputed at every step.
"""

import importlib.util
from dataclasses import replace

import torch
from torch import nn

from alewm.model.vit import LAYER_NORM_EPS, ViTConfig
from alewm.model.world_model import Encoding, WorldModel, WorldModelConfig
from alewm.planning.rollout import masked_roll_out, prefix_distance
from alewm.planning.search import CEMConfig, CEMResult, solve
from alewm.regularizers.quadrature import random_directions
from alewm.regularizers.sigreg import sigreg
from alewm.shapes import Float, Tensor


class ReferenceLeWM(WorldModel):
    """LeWM with the encoder of `transformers`, or with ours where that is not installed."""

    def __init__(self, config: WorldModelConfig) -> None:
        super().__init__(config)
        self.encoder_home = "alewm"
        if importlib.util.find_spec("transformers") is not None:
            self.encoder_home = "transformers"
            self.library_encoder = _library_encoder(config.encoder)
            del self.encoder

    def encode(self, pixels: Tensor) -> Encoding:
        """Features and latents of every frame."""
        if self.encoder_home == "alewm":
            return super().encode(pixels)
        images = self.normalise(pixels)
        channels_first = images.flatten(0, 1).permute(0, 3, 1, 2)
        tokens = self.library_encoder(pixel_values=channels_first, interpolate_pos_encoding=True).last_hidden_state
        features = tokens[:, 0].view(*images.shape[:2], -1)
        return Encoding(features, self.projector(features))


def _library_encoder(config: ViTConfig) -> nn.Module:
    from transformers import ViTConfig as LibraryConfig
    from transformers import ViTModel

    encoder: nn.Module = ViTModel(
        LibraryConfig(
            hidden_size=config.hidden_dim,
            num_hidden_layers=config.num_blocks,
            num_attention_heads=config.num_heads,
            intermediate_size=config.mlp_dim,
            image_size=config.image_size,
            patch_size=config.patch_size,
            layer_norm_eps=LAYER_NORM_EPS,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        add_pooling_layer=False,
    )
    return encoder


class ReferenceStep:
    """LeWM's update: encode, predict, SIGReg, backward, clip, AdamW."""

    def __init__(self, config: WorldModelConfig, device: torch.device, *, weight: float, projections: int) -> None:
        self.model = ReferenceLeWM(config).to(device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-5, weight_decay=1e-3)
        self.weight, self.projections = weight, projections
        self.directions = torch.Generator(device).manual_seed(0)

    def __call__(self, pixels: Tensor, actions: Tensor, dtype: torch.dtype | None) -> Tensor:
        """The loss before the update."""
        with torch.autocast(pixels.device.type, dtype=dtype, enabled=dtype is not None):
            s = self.model.encode(pixels).latents
            predicted = self.model.predict(s[:, :-1], actions)
            prediction = (predicted.float() - s[:, 1:].float()).square().mean()
        u = random_directions(s.shape[-1], self.projections, generator=self.directions)
        statistic = sigreg(s.float().transpose(0, 1), u[None], path="reference").mean()
        loss = prediction + self.weight * statistic
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()


def reference_plan(
    model: WorldModel,
    z_now: Float[Tensor, "B D"],
    z_goal: Float[Tensor, "B D"],
    noise: Float[Tensor, "iterations B S H A"],
    capacity: int,
    cem: CEMConfig,
) -> list[CEMResult]:
    """The plan of each episode, found one after the other by full-width masked rollouts."""

    def plan(b: int) -> CEMResult:
        def score(candidates: Tensor) -> Tensor:
            end = masked_roll_out(model, z_now[b : b + 1], candidates, capacity, last_width=capacity)[-1]
            return prefix_distance(end[..., :capacity], z_goal[b : b + 1])

        return solve(score, noise[:, b : b + 1], cem)

    return [plan(b) for b in range(len(z_now))]


def lewm_of(config: WorldModelConfig) -> WorldModelConfig:
    """The same networks without capacities."""
    return replace(config, capacities=(config.latent_dim,), has_selector=False)
