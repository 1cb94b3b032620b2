"""The study's trajectories, split as in the paper."""

from dataclasses import dataclass

import torch

from alewm.experiments.oscillator.dynamics import OscillatorDynamics
from alewm.experiments.oscillator.observation import ObservationMap
from alewm.shapes import Float, Tensor

SPLIT_SIZES = {"train": 5000, "validation": 1000, "test": 1000}


@dataclass(frozen=True)
class Trajectories:
    """States, what was seen of them, and the actions between them."""

    state: Float[Tensor, "N F 4"]
    observation: Float[Tensor, "N F 10"]
    action: Float[Tensor, "N T 2"]


def make_splits(seed: int, *, sizes: dict[str, int] = SPLIT_SIZES) -> dict[str, Trajectories]:
    """Independent train, validation and test trajectories of one seed."""
    dynamics, observation = OscillatorDynamics(), ObservationMap()
    splits = {}
    for position, (name, size) in enumerate(sizes.items()):
        generator = torch.Generator().manual_seed(1000 * seed + position)
        state, action = dynamics.simulate(size, generator)
        splits[name] = Trajectories(state, observation.observe(state, generator), action)
    return splits
