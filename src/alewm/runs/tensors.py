"""Tensors on disk: safetensors only, so that loading a file never runs code, with a digest of what they hold."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from alewm.errors import InputError
from alewm.files import write_bytes
from alewm.shapes import Tensor

_DIGEST = "sha256"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Writes named tensors in one step, with `metadata` and their digest in the file's header."""
    entries = {**(metadata or {}), _DIGEST: _digest(tensors, metadata or {})}
    write_bytes(path, _with_metadata(save(dict(tensors)), entries))


def load_tensors(path: Path, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and metadata of `path`; damage is refused with `remedy`. Files without a digest are trusted."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}); {remedy}") from error
    expected = metadata.pop(_DIGEST, None)
    if expected is not None and _digest(tensors, metadata) != expected:
        raise InputError(f"{path} is damaged (its tensors differ from the SHA-256 in its header); {remedy}")
    return tensors, metadata


def _with_metadata(content: bytes, metadata: Mapping[str, str]) -> bytes:
    """The bytes of a safetensors file with `metadata` in its header, in one order: the library's own varies."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(
        {"__metadata__": dict(sorted(metadata.items())), **json.loads(content[8:end])}, separators=(",", ":")
    ).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[end:]


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
