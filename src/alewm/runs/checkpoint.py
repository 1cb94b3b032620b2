"""Tensors on disk: safetensors only, so that loading a file never runs code."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save

from alewm.errors import InputError
from alewm.runs.files import write_bytes
from alewm.shapes import Tensor


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Writes named tensors in one step."""
    write_bytes(path, save(tensors, metadata))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors that `save_tensors` wrote."""
    try:
        return load(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"There is no checkpoint {path}.") from None
    except SafetensorError as error:
        raise InputError(f"{path} is not a readable safetensors file: {error}.") from error
