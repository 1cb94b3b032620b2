"""Named complete configurations: the paper's selected rows, its baselines, and small ones for a laptop.

`two-room-192` is ALeWM with the paper's hyperparameters for that task and width; `two-room-192-lewm-32` is LeWM with a
latent of 32 from the grid of the same block; `two-room-192-nested-dropout` and `two-room-192-alewm-sigreg` are the
ablations with that row's hyperparameters. `reacher+two-room-192` learns from both tasks' files at once. Seeds of the
paper: 3072, 3073, 3074.
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from alewm.data.windows import FRAME_SKIP
from alewm.errors import unknown_name
from alewm.model.predictor import PredictorConfig
from alewm.model.vit import ViTConfig
from alewm.model.world_model import SelectorConfig, WorldModelConfig
from alewm.training.config import RunConfig, TrainingConfig
from alewm.training.objective import ObjectiveConfig
from alewm.training.optim import OptimConfig

SEEDS = (3072, 3073, 3074)
"""Model seeds of the paper."""

ACTION_DIMS = {"two-room": 2, "push-t": 2, "reacher": 2, "cube": 5}
"""Numbers per environment action of each task."""

VIT_TINY = ViTConfig()
VIT_SMALL = ViTConfig(hidden_dim=384, num_heads=6, mlp_dim=1536)

LEWM_WEIGHT = 0.09
"""LeWM's weight of SIGReg."""

CAPACITIES = {
    96: (8, 16, 32, 64, 96),
    192: (8, 16, 32, 64, 96, 128, 160, 192),
    384: (8, 16, 32, 64, 96, 128, 160, 192, 256, 320, 384),
}
"""Capacity support of each width; also the widths among which LeWM's is chosen."""


class Selected(NamedTuple):
    """One row of the paper's table of selected hyperparameters."""

    regularizer_weight: float
    """λ"""
    selector_multiplier: float
    """s_q"""
    prior_degree: float
    """α"""


SELECTED = {
    ("two-room", 96): Selected(0.15, 3, 3),
    ("push-t", 96): Selected(0.09, 2, -1),
    ("reacher", 96): Selected(0.30, 3, 2),
    ("cube", 96): Selected(0.30, 3, 1),
    ("two-room", 192): Selected(0.30, 3, 3),
    ("push-t", 192): Selected(0.15, 2, -0.5),
    ("reacher", 192): Selected(0.30, 3, -0.5),
    ("cube", 192): Selected(0.20, 3, 1),
    ("two-room", 384): Selected(0.20, 2, 3),
    ("push-t", 384): Selected(0.09, 1, -0.5),
    ("reacher", 384): Selected(0.20, 2, 1),
    ("cube", 384): Selected(0.15, 2, 0),
}
"""The paper's choice for each task and width."""


MIXED = ("reacher", "two-room")
"""The tasks of the paper's model of two data sets, in the order of their files."""

MIXED_SELECTED = Selected(0.30, 3, -3)
"""λ and s_q as both tasks have them at width 192, since the paper names none; α as its initial q(192) = 0.837 says."""


def preset(name: str) -> RunConfig:
    """The configuration called `name`; an unknown name is refused, proposing the nearest."""
    presets = _presets()
    if name not in presets:
        raise unknown_name("preset", name, presets)
    return presets[name]


def preset_names() -> tuple[str, ...]:
    """The names of all presets, sorted."""
    return tuple(sorted(_presets()))


@cache
def _presets() -> dict[str, RunConfig]:
    presets = {"two-room-tiny": _tiny(), "two-room-tiny-lewm": as_lewm(_tiny())}
    mixed = _selected_row(MIXED[0], 192, MIXED_SELECTED)
    presets[f"{'+'.join(MIXED)}-192"] = replace(mixed, task="+".join(MIXED))
    for (task, width), selected in SELECTED.items():
        row = _selected_row(task, width, selected)
        presets[f"{task}-{width}"] = row
        presets[f"{task}-{width}-alewm-sigreg"] = as_alewm_sigreg(row)
        presets[f"{task}-{width}-nested-dropout"] = as_nested_dropout(row)
        for latent_dim in CAPACITIES[width]:
            presets[f"{task}-{width}-lewm-{latent_dim}"] = as_lewm(row, latent_dim)
    return presets


def _selected_row(task: str, width: int, selected: Selected) -> RunConfig:
    return RunConfig(
        task=task,
        model=WorldModelConfig(
            latent_dim=width,
            capacities=CAPACITIES[width],
            prior_degree=float(selected.prior_degree),
            action_dim=FRAME_SKIP * ACTION_DIMS[task],
            encoder=VIT_SMALL if width == 384 else VIT_TINY,
        ),
        objective=ObjectiveConfig(regularizer_weight=selected.regularizer_weight),
        training=TrainingConfig(optim=OptimConfig(selector_multiplier=float(selected.selector_multiplier))),
    )


def as_lewm(config: RunConfig, latent_dim: int | None = None, weight: float = LEWM_WEIGHT) -> RunConfig:
    """LeWM with everything else as in `config`: same encoder and schedule, the whole latent always in use."""
    width = latent_dim or config.model.latent_dim
    return replace(
        config,
        model=replace(
            config.model, latent_dim=width, capacities=(width,), prior_degree=0.0, prior="ranks", has_selector=False
        ),
        objective=ObjectiveConfig(
            method="lewm", regularizer_weight=weight, num_projections=config.objective.num_projections
        ),
        training=replace(config.training, optim=replace(config.training.optim, selector_multiplier=1.0)),
    )


def as_alewm_sigreg(config: RunConfig) -> RunConfig:
    """The ablation: everything as in `config`, but SIGReg on the masked latent in place of MixSIGReg."""
    return replace(config, objective=replace(config.objective, method="alewm-sigreg"))


def as_nested_dropout(config: RunConfig) -> RunConfig:
    """The baseline: as `config`, but capacities come from the fixed prior and the prefix alone is predicted."""
    return replace(
        config,
        model=replace(config.model, has_selector=False),
        objective=replace(config.objective, method="nested-dropout", prediction_target="prefix"),
        training=replace(config.training, optim=replace(config.training.optim, selector_multiplier=1.0)),
    )


def _tiny() -> RunConfig:
    """The real method with a small encoder on images of 28 pixels: a complete short schedule on one CPU core.

    Four large patches instead of many small ones, because at a given time twice the updates are worth more than
    tokens: a patch holds at most one dot, and the width is enough to say where in it.
    """
    return RunConfig(
        task="two-room",
        model=WorldModelConfig(
            latent_dim=32,
            capacities=(2, 4, 8, 16, 32),
            prior_degree=1.0,
            action_dim=FRAME_SKIP * ACTION_DIMS["two-room"],
            projector_dim=256,
            encoder=ViTConfig(image_size=28, patch_size=14, hidden_dim=64, num_blocks=3, num_heads=2, mlp_dim=128),
            # Without dropout: the run is too short to overfit.
            predictor=PredictorConfig(num_blocks=2, num_heads=4, head_dim=16, mlp_dim=128, dropout=0.0),
            selector=SelectorConfig(num_blocks=2, num_heads=4, mlp_dim=128),
        ),
        objective=ObjectiveConfig(regularizer_weight=0.3, num_projections=128),
        training=TrainingConfig(
            batch_size=64,
            num_steps=3300,
            optim=OptimConfig(learning_rate=2e-3, selector_multiplier=3.0, warmup_fraction=0.02),
            validate_every=1100,
            checkpoint_every=1100,
        ),
    )
