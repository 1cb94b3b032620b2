"""The fixed-prefix rollout: z_1 = M_k enc(o_1), then z_{t+1} = M_k pred(z_t, a_t), for all candidates at once.

A plan starts from one frame. The predictor reads at most `context` positions, so its history grows with its own
predictions and then slides:

    step   latents read          blocks read        appended
    1      z1                    a1                 z2
    2      z1 z2                 a1 a2              z3
    3      z1 z2 z3              a1 a2 a3           z4
    4         z2 z3 z4              a2 a3 a4        z5
    5            z3 z4 z5              a3 a4 a5     z6   <- compared with the goal

H blocks make H predictions. Every shape depends on sizes only, never on values, and nothing here waits for the
device: the whole loop can be traced, compiled or captured.
"""

import torch

from alewm.planning.model_protocol import PlanningModel, PrefixImagination, StepPredictor, next_latent
from alewm.shapes import Float, Tensor

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
