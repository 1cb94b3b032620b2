"""The fixed-prefix rollout and the goal cost, for any model that offers `PlanningModel`.

z_1 = M_k enc(o_1), then z_{t+1} = M_k pred(z_t, a_t), for all candidates at once. A plan starts from one frame. The
predictor reads at most `context` positions, so its history grows with its own predictions and then slides:

    step   latents read          blocks read        appended
    1      z1                    a1                 z2
    2      z1 z2                 a1 a2              z3
    3      z1 z2 z3              a1 a2 a3           z4
    4         z2 z3 z4              a2 a3 a4        z5
    5            z3 z4 z5              a3 a4 a5     z6   <- compared with the goal

H blocks make H predictions. Every shape depends on sizes only, never on values, and nothing here waits for the
device: the whole loop can be traced, compiled or captured.
"""

from typing import Literal, Protocol, runtime_checkable

import torch

from alewm.capacity.support import CapacitySupport
from alewm.devices import at_least_float32
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
    """A model with its own rollout, which can cache intermediate results."""

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


GoalCost = Literal["active", "full"]
"""`active`: the k coordinates of the planned prefix, as the paper's main table. `full`: all D, last one unmasked."""


def compared_width(goal_cost: GoalCost, capacity: int, latent_dim: int) -> int:
    """How many coordinates of the terminal latent are compared with the goal."""
    return capacity if goal_cost == "active" else latent_dim


def prefix_distance(
    z_terminal: Float[Tensor, "*batch S width"], z_goal: Float[Tensor, "*batch D"]
) -> Float[Tensor, "*batch S"]:
    """The mean square difference over the coordinates `z_terminal` has: the paper's ‖ẑ_H - M_k s_g‖² / k.

    In float32 at least, whatever the model's precision: costs of the last CEM iterations differ by little.
    """
    goal = z_goal[..., None, : z_terminal.shape[-1]]
    return (at_least_float32(z_terminal) - at_least_float32(goal)).square().mean(-1)


CONTEXT = 3
"""Positions the paper's predictor reads."""


def masked_roll_out(
    model: StepPredictor,
    z_first: Float[Tensor, "B D"],
    candidates: Float[Tensor, "B S H A"],
    capacity: int,
    *,
    last_width: int,
    context: int = CONTEXT,
) -> list[Float[Tensor, "B S width"]]:
    """The H predicted latents of every candidate, written as the paper writes them: full width, masked each step.

    This is the reference for `sliced_roll_out`. All latents have D coordinates, of which `capacity` are not zero;
    the last keeps `last_width` of them unmasked (k for the active goal cost, D for the full one).
    """
    B, S, H, _ = candidates.shape
    z = z_first.clone()
    z[:, capacity:] = 0
    history = [z.repeat_interleave(S, 0)]
    blocks = candidates.flatten(0, 1)
    for t in range(H):
        seen = slice(max(0, t + 1 - context), t + 1)
        z_hat = model.predict(torch.stack(history[seen], 1), blocks[:, seen])[:, -1].clone()
        z_hat[:, last_width if t == H - 1 else capacity :] = 0
        history.append(z_hat)
    return [z_hat.reshape(B, S, -1) for z_hat in history[1:]]


def sliced_roll_out(
    model: PlanningModel,
    z_first: Float[Tensor, "B D"],
    candidates: Float[Tensor, "B S H A"],
    capacity: int,
    *,
    last_width: int,
    context: int = CONTEXT,
) -> list[Float[Tensor, "B S _"]]:
    """The H predicted latents of every candidate, carrying only the k active coordinates.

    All have `capacity` coordinates except the last, which has `last_width`. Equal to the first coordinates of
    `masked_roll_out` up to rounding. A model that can roll out by itself does.
    """
    B, S, H, _ = candidates.shape
    latent_dim = z_first.shape[-1]
    history = [z_first[:, :capacity].repeat_interleave(S, 0)]
    blocks = candidates.flatten(0, 1)
    if isinstance(model, PrefixImagination):
        imagined = model.imagine_prefix(history[0], blocks, last_width, context)
        return [z_hat.reshape(B, S, -1) for z_hat in imagined]
    for t in range(H):
        seen = slice(max(0, t + 1 - context), t + 1)
        width = last_width if t == H - 1 else capacity
        history.append(next_latent(model, torch.stack(history[seen], 1), blocks[:, seen], width, latent_dim))
    return [z_hat.reshape(B, S, -1) for z_hat in history[1:]]
