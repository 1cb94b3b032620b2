"""What planning asks of a world model, so that any model that offers it can be planned with."""

from typing import Protocol, runtime_checkable

from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError
from alewm.shapes import Float, Tensor


@runtime_checkable
class PlanningModel(Protocol):
    """A world model as planning sees it."""

    @property
    def support(self) -> CapacitySupport:
        """The capacities it can be planned with."""
        ...

    def encode(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, F, W] and latents [B, F, D] of pixels [B, F, 3, Y, X], uint8 or float."""
        ...

    def capacity_logits(self, features: Tensor) -> Tensor:
        """Logits [B, C] over the support, from features [B, F, W] of the first and the goal frame."""
        ...


@runtime_checkable
class StepPredictor(Protocol):
    """A model that predicts step by step; one that does not must roll out by itself (`PrefixImagination`)."""

    def predict(self, z: Tensor, actions: Tensor) -> Tensor:
        """The next latent [N, T, D] at each of T positions, causally, from latents [N, T, D] and blocks [N, T, A]."""
        ...


@runtime_checkable
class SlicedPredictor(Protocol):
    """A model that can also predict from a short latent without ever building the wide one."""

    def predict_prefix(self, z: Tensor, actions: Tensor, width: int) -> Tensor:
        """The first `width` coordinates [N, width] of the latent after the last of T positions.

        `z` [N, T, k] holds only the k active coordinates; the others count as zero. Equal to `predict` on the
        zero-padded latent, up to rounding.
        """
        ...


@runtime_checkable
class PrefixImagination(Protocol):
    """A model that can also roll out by itself, and so without computing anything twice."""

    def imagine_prefix(self, z_first: Tensor, actions: Tensor, last_width: int, context: int) -> list[Tensor]:
        """The H latents that follow `z_first` [N, k] under `actions` [N, H, A], each from the latest `context`.

        All have k coordinates, the last has `last_width`. Equal to H predictions one after the other, up to rounding.
        """
        ...


def next_latent(
    model: PlanningModel, z: Float[Tensor, "N T k"], actions: Float[Tensor, "N T A"], width: int, latent_dim: int
) -> Float[Tensor, "N width"]:
    """The first `width` coordinates of the latent after the last position, from a prefix of k coordinates.

    Models without a sliced path get the prefix zero-padded to D, which is the mask of the paper's rollout.
    """
    if isinstance(model, SlicedPredictor):
        return model.predict_prefix(z, actions, width)
    if not isinstance(model, StepPredictor):
        raise InputError(f"A {type(model).__name__} offers neither `predict` nor `imagine_prefix`: it cannot plan.")
    padded = z.new_zeros(*z.shape[:-1], latent_dim)
    padded[..., : z.shape[-1]] = z
    return model.predict(padded, actions)[:, -1, :width]
