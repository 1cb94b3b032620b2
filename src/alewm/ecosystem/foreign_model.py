"""Any model with `encode` and `rollout`, as stable-worldmodel defines them, in our planner."""

import math
from collections.abc import MutableMapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError
from alewm.model.pixels import PixelNormaliser
from alewm.model.world_model import Encoding
from alewm.shapes import Float, Tensor

MOST_IMAGES = 2048
"""Images remembered, the latest: two for each episode that is planned at once."""


@runtime_checkable
class Dynamics(Protocol):
    """What is asked of the foreign model."""

    def encode(self, info: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """A dictionary with `emb` [B, T, D], from one with `pixels` [B, T, 3, Y, X], normalised."""
        ...

    def rollout(self, info: MutableMapping[str, Any], candidates: Tensor) -> MutableMapping[str, Any]:
        """A dictionary with `predicted_emb` [B, S, 1 + horizon, D], from one with `pixels` [B, S, 1, 3, Y, X]."""
        ...


class ForeignWorldModel(nn.Module):
    """A model of one capacity, its full width, that `alewm.planning.planner.Planner` can plan with."""

    def __init__(self, model: Any, *, latent_dim: int, image_size: int = 224) -> None:
        super().__init__()
        if not isinstance(model, Dynamics):
            raise InputError(f"A {type(model).__name__} has no `encode` and `rollout`; it cannot be planned with.")
        self.model = model.eval() if isinstance(model, nn.Module) else model
        self.support = CapacitySupport.full(latent_dim)
        self.normalise = PixelNormaliser(image_size)
        self._seen: dict[bytes, Tensor] = {}
        self.eval()

    def encode(self, pixels: Tensor) -> Encoding:
        """Latents of pixels [B, F, 3, Y, X] as they are stored; they also stand for features, which nobody reads."""
        latents = self.model.encode({"pixels": self._normalised(pixels)})["emb"]
        expected = (*pixels.shape[:2], self.support.capacities[-1])
        if tuple(latents.shape) != expected:
            raise InputError(f"`encode` gave `emb` of shape {list(latents.shape)}, expected {list(expected)}.")
        # A rollout may encode its first frame again, so the image behind a latent must be found from it.
        for z, image in zip(latents.flatten(0, 1), pixels.flatten(0, 1), strict=True):
            self._seen[_name(z)] = image
        while len(self._seen) > MOST_IMAGES:
            del self._seen[next(iter(self._seen))]
        return Encoding(latents, latents)

    def capacity_logits(self, features: Float[Tensor, "B F W"]) -> Float[Tensor, "B 1"]:
        """Zero for the one capacity there is."""
        return features.new_zeros(len(features), 1)

    def imagine_prefix(
        self, z_first: Float[Tensor, "N D"], actions: Float[Tensor, "N H A"], last_width: int, context: int
    ) -> list[Float[Tensor, "N D"]]:
        """The H latents that follow each of `z_first`; how much of the past it reads is the model's own affair."""
        S = _candidates_per_episode(z_first)
        first = z_first[::S]
        frames = torch.stack([self._image_of(z) for z in first])[:, None]
        info = {
            "pixels": self._normalised(frames)[:, None].expand(-1, S, -1, -1, -1, -1),
            "emb": first[:, None, None].expand(-1, S, 1, -1),
        }
        predicted = self.model.rollout(info, actions.view(len(first), S, *actions.shape[1:]))["predicted_emb"]
        expected = (len(first), S, 1 + actions.shape[1], z_first.shape[-1])
        if tuple(predicted.shape) != expected:
            raise InputError(
                f"`rollout` gave `predicted_emb` of shape {list(predicted.shape)}, expected {list(expected)}: the "
                f"first latent and one per block."
            )
        return [z_hat.flatten(0, 1) for z_hat in predicted[:, :, 1:].unbind(2)]

    def _normalised(self, pixels: Tensor) -> Float[Tensor, "B F 3 Y X"]:
        normalised: Tensor = self.normalise(pixels)
        return normalised.movedim(-1, 2)

    def _image_of(self, z: Tensor) -> Tensor:
        try:
            return self._seen[_name(z)]
        except KeyError:
            raise InputError(
                f"A rollout was asked for from a latent that is not among the last {MOST_IMAGES} that `encode` gave. "
                f"Plan from images, and for at most {MOST_IMAGES // 2} episodes at once."
            ) from None


def _name(z: Tensor) -> bytes:
    return z.detach().cpu().contiguous().numpy().tobytes()


def _candidates_per_episode(z_first: Tensor) -> int:
    """How often every latent is repeated, one after the other; equal neighbours count as one episode."""
    _, counts = torch.unique_consecutive(z_first, dim=0, return_counts=True)
    return math.gcd(*counts.tolist())
