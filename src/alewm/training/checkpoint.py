"""A run's checkpoints: what a description means, and the model, optimizer and random streams at their saved state.

The files are those of `alewm.model.checkpoint`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from alewm.config import from_dict, to_dict
from alewm.errors import InputError
from alewm.files import reading
from alewm.model.checkpoint import (
    DESCRIPTION,
    MODEL,
    TRAINING,
    checkpoints_in,
    cure,
    load_weights,
    read_content,
    read_tensors,
    write_checkpoint,
)
from alewm.model.world_model import WorldModel, build_world_model
from alewm.runs.folder import require_run
from alewm.shapes import Tensor
from alewm.training.config import RunConfig
from alewm.training.noise import RandomStreams


@dataclass(frozen=True)
class Description:
    """The readable half of a checkpoint."""

    step: int
    """Updates made."""
    config: RunConfig
    """The run it belongs to."""
    source_state: dict[str, Any]
    """Where training goes on in the data."""
    extras: dict[str, Any]
    """What the caller had saved along: normalisation, data fingerprint, versions."""


def save_checkpoint(
    folder: Path,
    description: Description,
    model: WorldModel,
    optimizer: torch.optim.Optimizer,
    streams: RandomStreams,
) -> Path:
    """The new checkpoint under `folder`; it appears there whole or not at all."""
    tensors = {MODEL: model.state_dict(), TRAINING: _training_tensors(model, optimizer, streams)}
    return write_checkpoint(folder, _described(description), tensors)


def save_weights(folder: Path, description: Description, state: Mapping[str, Tensor]) -> Path:
    """A new checkpoint under `folder` to plan with; it has nothing from which training could go on."""
    return write_checkpoint(folder, _described(description), {MODEL: state})


def read_description(checkpoint: Path) -> Description:
    """What a checkpoint says about itself."""
    path, content = checkpoint / DESCRIPTION, read_content(checkpoint)
    try:
        config = from_dict(RunConfig, content["config"])
        values = content["step"], content["source_state"], content["extras"]
        for name, value, kind in zip(("step", "source_state", "extras"), values, (int, dict, dict), strict=True):
            if not isinstance(value, kind):
                raise InputError(f"{name} must be {kind.__name__}, found {type(value).__name__}.")
        return Description(values[0], config, values[1], values[2])
    except KeyError as error:
        raise InputError(f"{path} lacks {error}. {cure(checkpoint)}") from error
    except InputError as error:
        raise InputError(f"{path}: {error} {cure(checkpoint)}") from error


def latest_checkpoint(run: Path) -> Path:
    """The newest checkpoint of the run in `run`."""
    require_run(run)
    saved = checkpoints_in(run / "checkpoints")
    if not saved:
        raise InputError(f"{run} has no checkpoint yet. Repeat its `alewm train` command to train it.")
    return saved[-1]


def load_world_model(checkpoint: Path, device: torch.device | None = None) -> tuple[WorldModel, Description]:
    """The trained model, in evaluation mode, and what is known about it."""
    description = read_description(checkpoint)
    with reading(checkpoint / DESCRIPTION):
        model = build_world_model(description.config.model, torch.Generator())
    load_weights(checkpoint, model)
    return model.to(device or torch.device("cpu")).eval(), description


def load_checkpoint(
    checkpoint: Path, model: WorldModel, optimizer: torch.optim.Optimizer, streams: RandomStreams
) -> Description:
    """The description, after model, optimizer and random streams were brought to the saved state."""
    description = read_description(checkpoint)
    load_weights(checkpoint, model)
    tensors = read_tensors(checkpoint / TRAINING)
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        groups.setdefault(kind, {})[rest] = tensor
    streams.load_state_dict(groups.pop("stream", {}))
    parameters = dict(model.named_parameters())
    for kind, moments in groups.items():
        if unknown := sorted(moments.keys() - parameters.keys()):
            raise InputError(f"{checkpoint / TRAINING} has {kind} for unknown parameters {unknown[:5]}.")
        for name, moment in moments.items():
            # Adam's step counts stay in float32 scalars, the moments are like their parameter.
            optimizer.state[parameters[name]][kind] = moment.to(parameters[name].device)
    return description


def _training_tensors(model: WorldModel, optimizer: torch.optim.Optimizer, streams: RandomStreams) -> dict[str, Tensor]:
    tensors = {f"stream/{name}": state for name, state in streams.state_dict().items()}
    for name, parameter in model.named_parameters():
        for kind, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{kind}/{name}"] = value
    return tensors


def _described(description: Description) -> dict[str, Any]:
    return {
        "step": description.step,
        "config": to_dict(description.config),
        "source_state": description.source_state,
        "extras": description.extras,
    }
