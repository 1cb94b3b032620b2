"""How much of everything a demonstration does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from alewm.config import overridden
from alewm.devices import find_device
from alewm.errors import InputError
from alewm.experiments.presets import preset
from alewm.planning.cem import CEMConfig
from alewm.training.config import RunConfig

ScaleName = Literal["full", "smoke", "large"]

_TINY = {"alewm": "two-room-tiny", "lewm": "two-room-tiny-lewm"}


@dataclass(frozen=True)
class DemoScale:
    """Which models learn from how much, and how they are evaluated."""

    presets: Mapping[str, str]
    """The preset of each run, by the name of its folder."""
    num_episodes: int
    """Recorded episodes; a fifth of them is held out for test, a tenth for validation."""
    num_pairs: int
    """Held-out pairs planned to."""
    cem: CEMConfig = field(default_factory=CEMConfig)
    """The search."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the presets that are different here, by dotted path."""
    needs_gpu: bool = False
    """Whether a GPU computes; otherwise the CPU does, where the same command gives the same bytes."""

    def configs(self, seed: int) -> dict[str, RunConfig]:
        """What each run is trained with, by the name of its folder."""
        changes = {**self.changes, "training.seed": seed}
        return {name: overridden(preset(preset_name), changes) for name, preset_name in self.presets.items()}

    def device(self) -> torch.device:
        """Where models learn and plan; a missing GPU is refused."""
        found = find_device("auto" if self.needs_gpu else "cpu")
        if self.needs_gpu and found.type == "cpu":
            raise InputError("This scale trains a full-size model, which takes a GPU, and torch sees none here.")
        return found


_LARGE_STEPS = 2000

SCALES: dict[ScaleName, DemoScale] = {
    "full": DemoScale(_TINY, num_episodes=1000, num_pairs=100),
    "smoke": DemoScale(
        _TINY,
        num_episodes=20,
        num_pairs=4,
        cem=CEMConfig(num_candidates=20, num_iterations=2, num_elites=4),
        changes={"training.num_steps": 6, "training.batch_size": 16},
    ),
    "large": DemoScale(
        {"alewm": "two-room-192"},
        num_episodes=10_000,
        num_pairs=200,
        changes={
            "training.num_steps": _LARGE_STEPS,
            "training.optim.learning_rate": 2e-4,  # four times the paper's, for a schedule of a twenty-eighth
            "training.validate_every": _LARGE_STEPS,
            "training.checkpoint_every": _LARGE_STEPS,
        },
        needs_gpu=True,
    ),
}
"""`full` is the demonstration; `smoke` is the same path in seconds, and its numbers mean nothing; `large` is ALeWM as
the paper has it, on a short schedule."""
