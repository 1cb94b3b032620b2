"""Checkpoints on disk: safetensors beside readable JSON, written atomically, read strictly. No pickle, no class paths.

A checkpoint is a folder `step-<n>` with

- `model.safetensors`: parameters and buffers, all that planning needs;
- `training.safetensors`: optimizer moments and the positions of the random streams; not in published checkpoints;
- `checkpoint.json`: step, the run's config, the position in the data, what the caller adds (normalisation, ...), and
  the SHA-256 of the two files and of itself, compared on loading. Older checkpoints have none and load silently.

This module knows files and weights; what a description means is in `alewm.training.checkpoint`.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from alewm.errors import InputError
from alewm.files import naming, parse_json
from alewm.model.world_model import WorldModel
from alewm.shapes import Tensor

FORMAT = 1
MODEL, TRAINING, DESCRIPTION = "model.safetensors", "training.safetensors", "checkpoint.json"
_DIGESTS = "sha256"
_ENTRIES = {"format", "step", "config", "source_state", "extras", _DIGESTS}


def write_checkpoint(folder: Path, described: Mapping[str, Any], files: Mapping[str, Mapping[str, Tensor]]) -> Path:
    """The new checkpoint under `folder`, with one file for each entry of `files`; it appears whole or not at all.

    `described` has the step, the config, the position in the data and the extras.
    """
    final = folder / f"step-{described['step']:08d}"
    partial = folder / f".{final.name}.partial"
    remove_leftovers(folder)
    content: dict[str, Any] = {"format": FORMAT, **described}
    with naming(final):
        try:
            partial.mkdir(parents=True)
            for name, tensors in files.items():
                save_file(_on_cpu(tensors), partial / name)
            content[_DIGESTS] = {name: file_sha256(partial / name) for name in files}
            content[_DIGESTS][DESCRIPTION] = _digest(content)
            (partial / DESCRIPTION).write_text(json.dumps(content, indent=2) + "\n")
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


def check_digests(checkpoint: Path) -> bool:
    """Whether a checkpoint has digests of its files; if it does, they were compared."""
    names = read_content(checkpoint).get(_DIGESTS, {}).keys() - {DESCRIPTION}
    for name in sorted(names):
        _check_file(checkpoint / name)
    return bool(names)


def read_content(checkpoint: Path) -> dict[str, Any]:
    """The values of `checkpoint.json`, compared with their digest."""
    path = checkpoint / DESCRIPTION
    if not path.is_file():
        advice = f" {cure(checkpoint)}" if checkpoint in checkpoints_in(checkpoint.parent) else ""
        raise InputError(f"{checkpoint} is no checkpoint: it has no {DESCRIPTION}.{advice}")
    try:
        content: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:  # no JSON, or no text at all
        raise InputError(f"{path} is damaged ({error}). {cure(checkpoint)}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, found {type(content).__name__}. {cure(checkpoint)}")
    if content.get("format") != FORMAT:
        raise InputError(f"{path} has format {content.get('format')!r}; this version reads format {FORMAT}.")
    if unknown := content.keys() - _ENTRIES:
        raise InputError(f"{path} has the unknown entry {min(unknown)!r}. {cure(checkpoint)}")
    digests = content.get(_DIGESTS, {})
    if not isinstance(digests, dict) or (_DIGESTS in content and digests.get(DESCRIPTION) != _digest(content)):
        raise InputError(
            f"{path} is damaged (its content differs from the SHA-256 in it). {cure(checkpoint)} If you edited it on "
            f"purpose, delete its entry {_DIGESTS!r}."
        )
    return content


def _digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of a description's values, however they are laid out; all but this digest itself count."""
    digests = {name: value for name, value in content[_DIGESTS].items() if name != DESCRIPTION}
    return hashlib.sha256(json.dumps({**content, _DIGESTS: digests}, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weights_sha256(checkpoint: Path) -> str:
    """The SHA-256 of a checkpoint's weights, which names them in what was made from them."""
    path = checkpoint / MODEL
    if not path.is_file():
        raise InputError(f"{path} is missing. {cure(checkpoint)}")
    return file_sha256(path)


def load_weights(checkpoint: Path, model: WorldModel) -> None:
    """Give `model` the weights of a checkpoint; those of another architecture are refused with the difference."""
    path = checkpoint / MODEL
    found, expected = read_tensors(path), model.state_dict()
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


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a file of a checkpoint, compared with its digest."""
    _check_file(path)
    try:
        return load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path} is damaged ({error}). {cure(path.parent)}") from error


def _check_file(path: Path) -> None:
    """Refuses a file of a checkpoint that is missing or differs from its digest."""
    if not path.is_file():
        # Shared models come without the state that training resumes from; that alone is no reason to delete one.
        shared = (
            ", as in shared models, which are for evaluation. Of a run of your own:" if path.name == TRAINING else "."
        )
        raise InputError(f"{path} is missing{shared} {cure(path.parent)}")
    expected = read_content(path.parent).get(_DIGESTS, {}).get(path.name)
    if expected is not None and (found := file_sha256(path)) != expected:
        raise InputError(
            f"{path} is damaged: its SHA-256 begins with {found[:12]}, {DESCRIPTION} says {str(expected)[:12]}. "
            f"{cure(path.parent)}"
        )


def cure(checkpoint: Path) -> str:
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
