"""Checkpoints: safetensors beside readable JSON, written atomically, loaded strictly. No pickle, no class paths.

A checkpoint is a folder `step-<n>` with

- `model.safetensors`: parameters and buffers, all that planning needs;
- `training.safetensors`: optimizer moments and the positions of the random streams; not in published checkpoints;
- `checkpoint.json`: step, the run's config, the position in the data, what the caller adds (normalisation, ...), and
  the SHA-256 of the two files and of itself, compared on loading. Older checkpoints have none and load without a word.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from alewm.config import from_dict, to_dict
from alewm.errors import InputError
from alewm.files import naming
from alewm.model.world_model import WorldModel, build_world_model
from alewm.shapes import Tensor
from alewm.training.config import RunConfig
from alewm.training.noise import RandomStreams

FORMAT = 1
_DIGESTS = "sha256"
_ENTRIES = {"format", "step", "config", "source_state", "extras", _DIGESTS}
_MODEL, _TRAINING, _DESCRIPTION = "model.safetensors", "training.safetensors", "checkpoint.json"


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
    tensors = {_MODEL: model.state_dict(), _TRAINING: _training_tensors(model, optimizer, streams)}
    return _write(folder, description, tensors)


def save_weights(folder: Path, description: Description, state: Mapping[str, Tensor]) -> Path:
    """A new checkpoint under `folder` to plan with; it has nothing from which training could go on."""
    return _write(folder, description, {_MODEL: state})


def _write(folder: Path, description: Description, files: Mapping[str, Mapping[str, Tensor]]) -> Path:
    final = folder / f"step-{description.step:08d}"
    partial = folder / f".{final.name}.partial"
    remove_leftovers(folder)
    content: dict[str, Any] = {
        "format": FORMAT,
        "step": description.step,
        "config": to_dict(description.config),
        "source_state": description.source_state,
        "extras": description.extras,
    }
    with naming(final):
        try:
            partial.mkdir(parents=True)
            for name, tensors in files.items():
                save_file(_on_cpu(tensors), partial / name)
            content[_DIGESTS] = {name: _file_digest(partial / name) for name in files}
            content[_DIGESTS][_DESCRIPTION] = _digest(content)
            (partial / _DESCRIPTION).write_text(json.dumps(content, indent=2) + "\n")
            for path in (*partial.iterdir(), partial):
                _flush(path)
        except BaseException:  # a full disk, for instance, which half a checkpoint would only keep full
            shutil.rmtree(partial, ignore_errors=True)
            raise
    _remove(final)
    partial.replace(final)
    _flush(folder)
    return final


def checkpoints_in(folder: Path) -> list[Path]:
    """The complete checkpoints under `folder`, oldest first."""
    found = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d{8,}", path.name)]
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    """The updates after which a checkpoint was written, as its name says."""
    return int(checkpoint.name.removeprefix("step-"))


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the `keep` latest checkpoints, and what an interrupted save left behind."""
    for path in checkpoints_in(folder)[:-keep]:
        _remove(path)
    remove_leftovers(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove what an interrupted save or removal left below `folder`, which must have no other writer."""
    for leftover in folder.glob(".step-*"):
        shutil.rmtree(leftover)


def read_description(checkpoint: Path) -> Description:
    """What a checkpoint says about itself."""
    path, content = checkpoint / _DESCRIPTION, _read_content(checkpoint)
    try:
        config = from_dict(RunConfig, content["config"])
        return Description(content["step"], config, content["source_state"], content["extras"])
    except KeyError as error:
        raise InputError(f"{path} lacks {error}. {_cure(checkpoint)}") from error
    except InputError as error:
        raise InputError(f"{path}: {error} {_cure(checkpoint)}") from error


def check_digests(checkpoint: Path) -> bool:
    """Whether a checkpoint has digests of its files; if it does, they were compared."""
    names = _read_content(checkpoint).get(_DIGESTS, {}).keys() - {_DESCRIPTION}
    for name in sorted(names):
        _check_file(checkpoint / name)
    return bool(names)


def _read_content(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / _DESCRIPTION
    if not path.is_file():
        cure = f" {_cure(checkpoint)}" if checkpoint in checkpoints_in(checkpoint.parent) else ""
        raise InputError(f"{checkpoint} is no checkpoint: it has no {_DESCRIPTION}.{cure}")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no JSON, or no text at all
        raise InputError(f"{path} is damaged ({error}). {_cure(checkpoint)}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, found {type(content).__name__}. {_cure(checkpoint)}")
    if content.get("format") != FORMAT:
        raise InputError(f"{path} has format {content.get('format')!r}; this version reads format {FORMAT}.")
    if unknown := content.keys() - _ENTRIES:
        raise InputError(f"{path} has the unknown entry {min(unknown)!r}. {_cure(checkpoint)}")
    digests = content.get(_DIGESTS)
    if digests is not None and (not isinstance(digests, dict) or digests.get(_DESCRIPTION) != _digest(content)):
        raise InputError(
            f"{path} is damaged (its content differs from the SHA-256 in it). {_cure(checkpoint)} If you edited it on "
            f"purpose, delete its entry {_DIGESTS!r}."
        )
    return content


def _digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of a description's values, however they are laid out; all but this digest itself count."""
    digests = {name: value for name, value in content[_DIGESTS].items() if name != _DESCRIPTION}
    return hashlib.sha256(json.dumps({**content, _DIGESTS: digests}, sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_world_model(checkpoint: Path, device: torch.device | None = None) -> tuple[WorldModel, Description]:
    """The trained model, in evaluation mode, and what is known about it."""
    description = read_description(checkpoint)
    model = build_world_model(description.config.model, torch.Generator())
    _load_weights(checkpoint, model)
    return model.to(device or torch.device("cpu")).eval(), description


def weights_sha256(checkpoint: Path) -> str:
    """The SHA-256 of a checkpoint's weights, by which what was made from them knows them again."""
    path = checkpoint / _MODEL
    if not path.is_file():
        raise InputError(f"{path} is missing. {_cure(checkpoint)}")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_checkpoint(
    checkpoint: Path, model: WorldModel, optimizer: torch.optim.Optimizer, streams: RandomStreams
) -> Description:
    """The description, after model, optimizer and random streams were brought to the saved state."""
    description = read_description(checkpoint)
    _load_weights(checkpoint, model)
    tensors = _read_tensors(checkpoint / _TRAINING)
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        groups.setdefault(kind, {})[rest] = tensor
    streams.load_state_dict(groups.pop("stream", {}))
    parameters = dict(model.named_parameters())
    for kind, moments in groups.items():
        if unknown := sorted(moments.keys() - parameters.keys()):
            raise InputError(f"{checkpoint / _TRAINING} has {kind} for unknown parameters {unknown[:5]}.")
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


def _load_weights(checkpoint: Path, model: WorldModel) -> None:
    path = checkpoint / _MODEL
    found, expected = _read_tensors(path), model.state_dict()
    lines = [f"missing: {name}" for name in sorted(expected.keys() - found.keys())]
    lines += [f"unexpected: {name}" for name in sorted(found.keys() - expected.keys())]
    lines += [
        f"{name}: expected shape {list(expected[name].shape)}, found {list(found[name].shape)}"
        for name in sorted(expected.keys() & found.keys())
        if expected[name].shape != found[name].shape
    ]
    if lines:
        shown = "\n  ".join(lines[:20]) + (f"\n  and {len(lines) - 20} more" if len(lines) > 20 else "")
        raise InputError(f"{path} does not fit the model of its config:\n  {shown}")
    model.load_state_dict(found)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    _check_file(path)
    try:
        return load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path} is damaged ({error}). {_cure(path.parent)}") from error


def _check_file(path: Path) -> None:
    """Refuses a file of a checkpoint that is missing or differs from its digest."""
    if not path.is_file():
        # Shared models come without the state that training resumes from; that alone is no reason to delete one.
        shared = (
            ", as in shared models, which are for evaluation. Of a run of your own:" if path.name == _TRAINING else "."
        )
        raise InputError(f"{path} is missing{shared} {_cure(path.parent)}")
    expected = _read_content(path.parent).get(_DIGESTS, {}).get(path.name)
    if expected is not None and (found := _file_digest(path)) != expected:
        raise InputError(
            f"{path} is damaged: its SHA-256 begins with {found[:12]}, {_DESCRIPTION} says {str(expected)[:12]}. "
            f"{_cure(path.parent)}"
        )


def _cure(checkpoint: Path) -> str:
    """What to do about a checkpoint that cannot be read."""
    saved = checkpoints_in(checkpoint.parent)
    if checkpoint in saved[1:]:
        before = saved[saved.index(checkpoint) - 1].name
        return f"Delete the folder {checkpoint}, then repeat the command: it goes on from the one before, {before}."
    return (
        f"There is no older checkpoint: delete the folder {checkpoint}, then repeat the run's `alewm train` command, "
        f"which begins anew. A model that was shared or imported has to be fetched again."
    )


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _remove(checkpoint: Path) -> None:
    # Renamed first, so that an interrupted removal never leaves half a checkpoint under a good name.
    if checkpoint.exists():
        doomed = checkpoint.with_name(f".{checkpoint.name}.doomed")
        shutil.rmtree(doomed, ignore_errors=True)
        checkpoint.replace(doomed)
        shutil.rmtree(doomed)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
