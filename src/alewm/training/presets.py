"""Complete configurations as a function of task, width and method; the paper's hyperparameters, and a tiny size.

`make_preset("two-room", 192)` is ALeWM with the paper's λ, s_q and α for that task and width.
`make_preset("two-room", 192, "lewm", 32)` is LeWM with a latent of 32 and the same encoder. A preset also has a name,
which records use: `two-room-192`, `two-room-192-lewm-32`, `two-room-tiny`, `reacher+two-room-192`.
"""

import re
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

from alewm.data.checks import read_label
from alewm.errors import InputError, unknown_name
from alewm.model.predictor import PredictorConfig
from alewm.model.vit import ViTConfig
from alewm.model.world_model import SelectorConfig, WorldModelConfig
from alewm.shapes import FRAME_SKIP
from alewm.training.config import Method, ObjectiveConfig, OptimConfig, RunConfig, TrainingConfig

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


def make_preset(
    task: str, width: int | str = 192, method: Method = "alewm", latent_dim: int | None = None
) -> RunConfig:
    """The configuration of `method` on `task` at `width`, which is `tiny`, 96, 192 or 384.

    `latent_dim` is for LeWM, whose latent may be narrower.
    """
    base = _base(task, str(width))
    if latent_dim is not None and method != "lewm":
        raise InputError(f"A latent of its own ({latent_dim}) is for LeWM; {method} has the width's.")
    if method == "lewm":
        return as_lewm(base, latent_dim)
    if method == "alewm-sigreg":
        return as_alewm_sigreg(base)
    return as_nested_dropout(base) if method == "nested-dropout" else base


def preset_name(task: str, width: int | str = 192, method: Method = "alewm", latent_dim: int | None = None) -> str:
    """The name of a preset, as records have it."""
    name = f"{task}-{width}"
    if method != "lewm":
        return name if method == "alewm" else f"{name}-{method}"
    base = _base(task, str(width))
    latent = latent_dim or base.model.latent_dim
    # The records of tiny models at full width have names without a latent.
    is_implied = str(width) == "tiny" and latent == base.model.latent_dim
    return f"{name}-lewm" if is_implied else f"{name}-lewm-{latent}"


def preset(name: str) -> RunConfig:
    """The configuration called `name`; an unknown name is refused, proposing the nearest."""
    return make_preset(*_arguments_of(name))


@cache
def preset_names() -> tuple[str, ...]:
    """The names of the tiny pair and of the paper's configurations, sorted."""
    names = ["two-room-tiny", "two-room-tiny-lewm", preset_name("+".join(MIXED))]
    for task, width in SELECTED:
        methods: tuple[Method, ...] = ("alewm", "alewm-sigreg", "nested-dropout")
        names += [preset_name(task, width, method) for method in methods]
        names += [preset_name(task, width, "lewm", latent_dim) for latent_dim in CAPACITIES[width]]
    return tuple(sorted(names))


def resolve_preset(
    word: str, width: int | str | None = None, method: Method | None = None, latent_dim: int | None = None
) -> str:
    """The name of the preset that a task (`two-room`) with options, or a preset's name without options, asks for."""
    if word in _TASKS:
        return preset_name(word, 192 if width is None else width, method or "alewm", latent_dim)
    if width is None and method is None and latent_dim is None:
        _arguments_of(word)
        return word
    if _NAME.fullmatch(word):
        raise InputError(f"{word} names a width and a method already; --width, --method and --latent go with a task.")
    raise unknown_name("task", word, _TASKS)


def preset_flags(name: str) -> str:
    """The task and options that ask for the preset called `name`: `two-room --width 192 --method lewm --latent 32`."""
    task, width, method, latent_dim = _arguments_of(name)
    words = [task, "--width", width, *(["--method", method] if method != "alewm" else [])]
    return " ".join([*words, *(["--latent", str(latent_dim)] if latent_dim is not None else [])])


WIDTHS = ("tiny", *map(str, CAPACITIES))
"""The sizes a model can have."""

_TASKS = (*ACTION_DIMS, "+".join(MIXED))
_NAME = re.compile(
    rf"({'|'.join(map(re.escape, _TASKS))})-(tiny|96|192|384)(?:-(lewm|alewm-sigreg|nested-dropout)(?:-(\d{{1,4}}))?)?"
)


def _arguments_of(name: str) -> tuple[str, str, Method, int | None]:
    """Task, width, method and latent of the preset called `name`."""
    found = _NAME.fullmatch(name)
    if found is None:
        near = get_close_matches(name, [*_TASKS, *WIDTHS, *preset_names()], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(
            f"Unknown task or preset {name!r}.{hint} Tasks: {', '.join(_TASKS)}. For data of your own name a size, "
            f"{', '.join(WIDTHS)}: the task comes from the file. `alewm train --list` says what there is."
        )
    task, width, method, latent_dim = found.groups()
    return task, width, cast("Method", method or "alewm"), int(latent_dim) if latent_dim else None


def preset_of_file(
    path: Path, width: str, method: Method = "alewm", latent_dim: int | None = None
) -> tuple[str, RunConfig]:
    """Name and configuration for the data file at `path`, whose task need not be one of ours.

    The task's name and the width of its actions come from the file. A file that names no task gives it its own name.
    A task of one's own takes λ, s_q and α of Two-Room.
    """
    label = read_label(path)
    task = label.task or path.stem
    known = task if task in ACTION_DIMS else "two-room"
    config = make_preset(known, width, method, latent_dim)
    name = task + preset_name(known, width, method, latent_dim).removeprefix(known)
    if task != known:
        model = replace(config.model, action_dim=config.frame_skip * label.action_dim)
        config = replace(config, task=task, model=model)
    return name, config.with_frame_skip(label.frame_skip or config.frame_skip)


def _base(task: str, width: str) -> RunConfig:
    """ALeWM on `task` at `width`."""
    if width == "tiny":
        if task not in ACTION_DIMS:
            raise unknown_name("task", task, list(ACTION_DIMS))
        return _tiny(task)
    sizes = [str(size) for size in CAPACITIES]
    if width not in sizes:
        raise unknown_name("width", width, ["tiny", *sizes])
    if task == "+".join(MIXED) and width == "192":
        return replace(_selected_row(MIXED[0], 192, MIXED_SELECTED), task=task)
    if (task, int(width)) not in SELECTED:
        raise unknown_name(f"task with a preset of width {width}", task, _TASKS)
    return _selected_row(task, int(width), SELECTED[task, int(width)])


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
        model=replace(config.model, latent_dim=width, capacities=(width,), prior_degree=0.0, has_selector=False),
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


def _tiny(task: str) -> RunConfig:
    """The real method with a small encoder on images of 28 pixels: a complete short schedule on one CPU core.

    Its λ, s_q and α were chosen on Two-Room.

    Four large patches instead of many small ones, because at a given time twice the updates are worth more than
    tokens: a patch holds at most one dot, and the width is enough to say where in it.
    """
    return RunConfig(
        task=task,
        model=WorldModelConfig(
            latent_dim=32,
            capacities=(2, 4, 8, 16, 32),
            prior_degree=1.0,
            action_dim=FRAME_SKIP * ACTION_DIMS[task],
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
