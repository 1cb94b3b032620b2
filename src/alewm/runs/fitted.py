"""Small networks fitted to a trained model's latents and kept beside its checkpoints: a decoder, distilled dynamics.

A folder holds `model.safetensors` and a JSON description: sizes, how the network was fitted, its errors, and the
SHA-256 of the world model's weights. Other weights have another latent, so the network is refused for them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from alewm.config import differences
from alewm.errors import InputError
from alewm.files import read_object, write_json
from alewm.runs.folder import load_tensors, new_folder, save_tensors

FORMAT = 1
NETWORK = "model.safetensors"

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class FittedKind(Generic[Network]):
    """One kind of fitted network: what it is called, and how to make one of the sizes that its description has."""

    name: str
    """In words, for messages."""
    file: str
    """The name of the description."""
    command: str
    """What fits one."""
    make: Callable[[Any], Network]
    """A network of the sizes in the description's `config`; `InputError` where they are none."""
    needed: tuple[str, ...] = ()
    """Further fields of the description that are read later."""
    pictures: tuple[str, ...] = ()
    """Names of further files in the folder."""
    stored_as: torch.dtype = torch.float32

    def is_in(self, folder: Path) -> bool:
        return (folder / self.file).is_file()

    def describe(self, folder: Path) -> dict[str, Any]:
        """What the network in `folder` says about itself."""
        path = folder / self.file
        if not path.is_file():
            raise InputError(f"{folder} holds no {self.name}: it has no {self.file}. {self.remedy(folder)}")
        description = read_object(path)
        if description.get("format") != FORMAT:
            raise InputError(f"{path} has format {description.get('format')!r}; this version reads format {FORMAT}.")
        needed = ("config", "settings", "weights_sha256", "checkpoint", *self.needed)
        if missing := [name for name in needed if name not in description]:
            raise InputError(f"{path} lacks {', '.join(missing)}. {self.remedy(folder)}")
        return description

    def read(self, folder: Path, weights_sha256: str) -> Network:
        """The network in `folder`, which must have been fitted to the weights with this SHA-256."""
        description = self.describe(folder)
        if description["weights_sha256"] != weights_sha256:
            raise InputError(
                f"{folder} was fitted to other weights ({description['checkpoint']}, SHA-256 "
                f"{description['weights_sha256'][:12]}) than the model's ({weights_sha256[:12]}). "
                f"{self.remedy(folder)}"
            )
        try:
            network = self.make(description["config"])
        except InputError as error:
            raise InputError(f"{folder / self.file}: {error} {self.remedy(folder)}") from None
        tensors, _ = load_tensors(folder / NETWORK, self.remedy(folder))
        try:
            network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        except RuntimeError as error:
            raise InputError(f"{folder / NETWORK} cannot be read ({error}). {self.remedy(folder)}") from error
        return network.eval()

    def write(
        self,
        folder: Path,
        network: Network,
        description: Mapping[str, Any],
        *pictures: bytes,
    ) -> Path:
        """The new `folder` with the network, its description and its pictures; it appears whole or not at all."""
        tensors = {name: tensor.detach().cpu().to(self.stored_as) for name, tensor in network.state_dict().items()}
        with new_folder(folder) as partial:
            save_tensors(partial / NETWORK, {name: tensor.contiguous() for name, tensor in tensors.items()})
            for name, content in zip(self.pictures, pictures, strict=True):
                (partial / name).write_bytes(content)
            write_json(partial / self.file, description)
        return folder

    def copy(self, folder: Path, out: Path, weights_sha256: str, description: Mapping[str, Any]) -> None:
        """The network in `folder`, fitted to the weights with this SHA-256, in the new folder `out`."""
        network = self.read(folder, weights_sha256)
        self.write(out, network, description, *((folder / name).read_bytes() for name in self.pictures))

    def refuse_other(self, folder: Path, found: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        """Refuse what was fitted to other weights or with other settings than `asked`, naming the difference."""
        if changed := differences(dict(asked), {name: found[name] for name in asked}):
            raise InputError(f"{folder} was fitted otherwise:\n  " + "\n  ".join(changed) + f"\n{self.remedy(folder)}")

    def remedy(self, folder: Path) -> str:
        """What to do about a folder that cannot be used."""
        return f"Remove {folder} and fit it again: {self.command}"
