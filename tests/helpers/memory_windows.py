"""A small world in memory: a bright square that actions push around, as windows the trainer can read."""

import dataclasses
from typing import NamedTuple

import torch

from alewm.model.predictor import PredictorConfig
from alewm.model.vit import ViTConfig
from alewm.model.world_model import SelectorConfig, WorldModelConfig
from alewm.training.config import Method, ObjectiveConfig, OptimConfig, RunConfig, TrainingConfig

SIZE = 16
MODEL = WorldModelConfig(
    latent_dim=8,
    capacities=(2, 4, 8),
    prior_degree=0.5,
    action_dim=2,
    projector_dim=32,
    encoder=ViTConfig(image_size=SIZE, patch_size=8, hidden_dim=16, num_blocks=2, num_heads=2, mlp_dim=32),
    predictor=PredictorConfig(num_blocks=2, num_heads=2, head_dim=8, mlp_dim=32),
    selector=SelectorConfig(num_blocks=1, num_heads=2, mlp_dim=16),
)
LEWM = dataclasses.replace(MODEL, capacities=(8,), has_selector=False)
NESTED = dataclasses.replace(MODEL, has_selector=False)
MODEL_OF = {"alewm": MODEL, "alewm-sigreg": MODEL, "lewm": LEWM, "nested-dropout": NESTED}


class Windows(NamedTuple):
    pixels: torch.Tensor
    actions: torch.Tensor

    def to(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        return self.pixels.to(device), self.actions.to(device)

    def rows(self, start: int, stop: int) -> "Windows":
        return Windows(self.pixels[start:stop], self.actions[start:stop])


def draw_windows(count: int, seed: int = 0, frames: int = 4) -> Windows:
    generator = torch.Generator().manual_seed(seed)
    position = torch.randint(4, SIZE - 4, (count, 1, 2), generator=generator)
    moves = torch.randint(-2, 3, (count, frames - 1, 2), generator=generator)
    path = torch.cat([position, moves], dim=1).cumsum(1).clamp(1, SIZE - 2)
    axis = torch.arange(SIZE)
    near = (axis - path[..., None]).abs() <= 1
    square = near[..., 0, :, None] & near[..., 1, None, :]
    pixels = (square[..., None] * torch.tensor([255, 128, 30])).to(torch.uint8)
    return Windows(pixels, moves.float() / 2)


class MemoryWindows:
    """Batches of shuffled windows, each pass in its own order, with a position that can be saved."""

    def __init__(self, windows: Windows, batch_size: int) -> None:
        self.windows, self.batch_size = windows, batch_size
        self.passes = self.batches = 0

    def __len__(self) -> int:
        return len(self.windows.pixels) // self.batch_size

    def forever(self):
        while True:
            generator = torch.Generator().manual_seed(self.passes)
            order = torch.randperm(len(self.windows.pixels), generator=generator)
            while self.batches < len(self):
                rows = order[self.batches * self.batch_size : (self.batches + 1) * self.batch_size]
                self.batches += 1
                yield Windows(self.windows.pixels[rows], self.windows.actions[rows])
            self.passes, self.batches = self.passes + 1, 0

    def state_dict(self):
        return {"passes": self.passes, "batches": self.batches}

    def load_state_dict(self, state):
        self.passes, self.batches = state["passes"], state["batches"]


def run_config(method: Method = "alewm", **training) -> RunConfig:
    defaults = {
        "batch_size": 16,
        "num_steps": 12,
        "optim": OptimConfig(learning_rate=2e-3, selector_multiplier=2.0),
        "log_every": 2,
        "diagnose_every": 4,
        "validate_every": 6,
        "checkpoint_every": 4,
    }
    return RunConfig(
        task="squares",
        model=MODEL_OF[method],
        objective=ObjectiveConfig(method=method, regularizer_weight=0.1, num_projections=16),
        training=TrainingConfig(**{**defaults, **training}),
    )
