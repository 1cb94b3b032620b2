"""Tensors on disk: safetensors only, so that loading a file never runs code."""

from pathlib import Path

from safetensors.torch import save

from alewm.files import write_bytes
from alewm.shapes import Tensor


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes named tensors in one step."""
    write_bytes(path, save(tensors))
