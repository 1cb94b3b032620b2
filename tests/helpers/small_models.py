"""Models small enough for a test, of either kind."""

import json

import torch

from alewm.model.predictor import PredictorConfig
from alewm.model.vit import ViTConfig
from alewm.model.world_model import SelectorConfig, WorldModelConfig, build_world_model
from documented_lewm import named_by


def saved(original, folder, generation=5, config=True):
    folder.mkdir()
    torch.save(named_by(original.state_dict(), generation), folder / "weights.pt")
    if config:
        (folder / "config.json").write_text(json.dumps(original.config()))
    return folder


def our_model(latent_dim, capacities, seed=0):
    """A model of ours with every parameter away from where it starts."""
    config = WorldModelConfig(
        latent_dim=latent_dim,
        capacities=capacities,
        projector_dim=56,
        encoder=ViTConfig(image_size=28, patch_size=14, hidden_dim=64, num_blocks=2, num_heads=4, mlp_dim=96),
        predictor=PredictorConfig(num_blocks=2, num_heads=3, head_dim=8, mlp_dim=40),
        selector=SelectorConfig(num_blocks=1, num_heads=4, mlp_dim=32),
    )
    generator = torch.Generator().manual_seed(seed)
    model = build_world_model(config, generator).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model
