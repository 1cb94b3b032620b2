"""LeWM checkpoints as files: `config.json` beside `weights.pt`, read without running anything that is in them."""

import hashlib
import io
import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from alewm.errors import InputError
from alewm.files import read_object, write_bytes, write_json
from alewm.runs.lock import new_folder
from alewm.shapes import Tensor

CONFIG, WEIGHTS = "config.json", "weights.pt"


@dataclass(frozen=True)
class LeWMFiles:
    """What a LeWM checkpoint holds."""

    weights_path: Path
    """The file the tensors came from."""
    sha256: str
    """Of that file."""
    state: dict[str, Tensor]
    """Its tensors, under LeWM's names."""
    config: dict[str, Any]
    """The nested description in its config.json; empty where there is none."""


def read_lewm(path: Path) -> LeWMFiles:
    """The checkpoint at `path`: a folder with config.json and one `.pt`, or that `.pt` itself."""
    weights = _weights_path(path)
    config_path = weights.parent / CONFIG
    return LeWMFiles(
        weights,
        hashlib.sha256(weights.read_bytes()).hexdigest(),
        _read_state(weights),
        read_object(config_path) if config_path.is_file() else {},
    )


def write_lewm(folder: Path, config: dict[str, Any], state: dict[str, Tensor]) -> Path:
    """`folder` with config.json and weights.pt, as stable-worldmodel reads them; a folder in use is refused."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with new_folder(folder) as partial:
        write_bytes(partial / WEIGHTS, buffer.getvalue())
        write_json(partial / CONFIG, config)
    return folder


def _weights_path(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise InputError(
            f"{path} does not exist; give a folder with {CONFIG} and {WEIGHTS}, or a .pt file. "
            f"Nothing is downloaded: fetch a repository of the Hub first (hf download NAME --local-dir FOLDER)."
        )
    if (path / WEIGHTS).is_file():
        return path / WEIGHTS
    found = sorted(path.glob("*.pt"))
    if len(found) == 1:
        return found[0]
    if pickled := sorted(path.glob("*.ckpt")):
        raise InputError(_refusal(pickled[0]))
    names = ", ".join(file.name for file in found) or "none"
    raise InputError(f"{path} must hold {WEIGHTS} or exactly one .pt file, found {names}. Name the file you mean.")


def _read_state(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old pickle formats; what cannot be read is refused below
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(_refusal(path)) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a PyTorch file ({error}); is it complete?") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        held = type(state).__name__ if not isinstance(state, dict) else "a dictionary of other things than tensors"
        raise InputError(f"{path} must hold a plain state dict (names to tensors), found {held}.")
    if not state:
        raise InputError(f"{path} holds no tensors.")
    return state


def _refusal(path: Path) -> str:
    return (
        f"{path} holds pickled Python objects, not only tensors: loading it would run code from the file, so it is "
        f"refused. Where you trust it, save its state dict with the package that wrote it: "
        f"torch.save(model.state_dict(), '{WEIGHTS}')."
    )
