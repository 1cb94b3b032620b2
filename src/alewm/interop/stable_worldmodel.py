"""Our models inside stable-worldmodel's solvers and policies, without importing that package.

Its interfaces are structural: a solver calls `get_cost(info, candidates)` at every iteration, always with the same
dictionary, in which the solver has given every tensor a sample axis by expansion ([B, ...] became [B, S, ...]). What is
cached there must not depend on the candidates.

    key                shape                       who sets it
    pixels             [B, S, H, Y, X, 3]          the policy: uint8 frames of any size, channels first or last
    goal               [B, S, 1, Y, X, 3]          the policy, likewise
    action_history     [B, S, H - 1, A]            the policy, where H > 1: the blocks between the frames
    emb                [B, S, H, D]                `rollout`, once per plan
    goal_emb           [B, 1, D]                   `get_cost`, once per plan
    predicted_emb      [B, S, H + horizon, D]      `rollout`, every time

A policy without a `transform` hands over what the environment draws. The model then averages it down as training did;
a bilinear `Resize` in a transform gives a small model other frames than it learned from. Frames that a transform has
normalised with ImageNet's statistics are taken too, as floats of exactly the encoder's size, channels first.

`ForeignWorldModel` is the other direction: any model with `encode` and `rollout`, as stable-worldmodel defines them, in
our planner.
"""

import hashlib
import math
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from alewm.capacity.support import CapacitySupport
from alewm.config import from_dict
from alewm.data.action_statistics import ActionStatistics
from alewm.errors import InputError
from alewm.model.vit import IMAGENET_MEAN, IMAGENET_STD, PixelNormaliser, check_float_size, extremes
from alewm.model.world_model import Encoding, WorldModel, WorldModelConfig, build_world_model
from alewm.planning.capacity_rule import parse_capacity_rule
from alewm.planning.distilled import DistilledModel
from alewm.planning.rollout import GoalCost, compared_width, next_latent, prefix_distance, sliced_roll_out
from alewm.shapes import Float, Tensor
from alewm.training.checkpoint import Description, data_set_of

Info = MutableMapping[str, Any]
"""The dictionary that solver and model exchange."""

_CAPACITIES = "alewm_capacities"
"""Our own entry, a tuple: the capacity of each episode in this dictionary."""


class PlanningCost(nn.Module):
    """A world model of ours as `encode`, `rollout`, `criterion` and `get_cost`.

    The capacity of an episode is chosen once, from its first frame and its goal, and kept for all iterations and
    replans. Episodes are told apart by their goal images, the one thing that stays; episodes with the very same goal
    share a capacity. `forget` starts anew, for instance between two evaluations.
    """

    def __init__(
        self,
        model: WorldModel | DistilledModel,
        *,
        capacity: str = "modal",
        goal_cost: GoalCost = "active",
        seed: int = 42,
    ) -> None:
        """With a `DistilledModel` the world model looks and its distilled dynamics imagine."""
        super().__init__()
        self.distilled = model if isinstance(model, DistilledModel) else None
        self.model = (model.model if isinstance(model, DistilledModel) else model).eval()
        self.rule = parse_capacity_rule(capacity, model.support)
        if len(self.rule.named) > 1:
            raise InputError(
                f"The capacity rule {capacity!r} compares several plans, but a solver makes one; "
                f"choose modal, sample or a capacity."
            )
        self.goal_cost: GoalCost = goal_cost
        self.seed = seed
        self.action_scaler: ActionScaler | None = None
        """The `process` of actions, where the model was loaded with it."""
        self._chosen: dict[bytes, int] = {}

    def forget(self) -> None:
        """Start new episodes: forget all capacities."""
        self._chosen.clear()

    def encode(self, info: Info) -> Info:
        """`info` with `emb` [B, T, D] of its `pixels` [B, T, Y, X, 3], and `act_emb` where it has an `action`."""
        info["emb"] = self._latents(self._features(info["pixels"]))
        if "action" in info:
            info["act_emb"] = self.model.action_encoder(self._ready(info["action"]))
        return info

    def rollout(self, info: Info, candidates: Float[Tensor, "B S horizon A"]) -> Info:
        """`info` with `predicted_emb`: the context and its imagined future, zero beyond each episode's capacity."""
        self._prepare(info)
        candidates = self._ready(candidates)
        B, S, horizon, _ = candidates.shape
        context, latent_dim = info["emb"][:, 0], info["emb"].shape[-1]
        predicted = candidates.new_zeros(B, S, context.shape[1] + horizon, latent_dim)
        history = info.get("action_history")
        if context.shape[1] > 1 and history is None:
            raise InputError(f"{context.shape[1]} frames of context need the blocks between them: `action_history`.")
        capacities: tuple[int, ...] = info[_CAPACITIES]
        for capacity in sorted(set(capacities)):
            rows = torch.tensor([row for row, k in enumerate(capacities) if k == capacity], device=candidates.device)
            predicted[rows, :, : context.shape[1], :capacity] = context[rows, None, :, :capacity]
            past = self._ready(history)[rows] if history is not None else None
            imagined = self._imagine(context[rows], past, candidates[rows], capacity)
            for step, z_hat in enumerate(imagined, start=context.shape[1]):
                predicted[rows, :, step, : z_hat.shape[-1]] = z_hat.to(predicted.dtype)
        info["predicted_emb"] = predicted
        return info

    def criterion(self, info: Info, candidates: Tensor | None = None) -> Float[Tensor, "B S"]:
        """How far each candidate ends from the goal, over the coordinates in use; `info` has been rolled out."""
        if "goal" not in info:
            raise InputError(
                "The cost of a plan is its distance to a goal image, and `goal` is not in the dictionary. Give the "
                "environment's `goal` to the policy, or call `rollout`, which needs none."
            )
        self._prepare(info)
        ends, goal = info["predicted_emb"][:, :, -1], self._goal(info)
        capacities: tuple[int, ...] = info[_CAPACITIES]
        widths = [compared_width(self.goal_cost, k, ends.shape[-1]) for k in capacities]
        costs = [prefix_distance(end[:, :width], z_goal) for end, z_goal, width in zip(ends, goal, widths, strict=True)]
        return torch.stack(costs)

    def get_cost(self, info: Info, candidates: Float[Tensor, "B S horizon A"]) -> Float[Tensor, "B S"]:
        """The cost of every candidate, lower is better."""
        return self.criterion(self.rollout(info, candidates), candidates)

    @torch.no_grad()
    def _prepare(self, info: Info) -> None:
        """Encodes the context and the goal and chooses capacities, unless this dictionary has them already.

        Without a graph: a solver that follows gradients runs backward once per step, and what is kept here serves all
        of its steps.
        """
        if _CAPACITIES in info:
            return
        pixels = info["pixels"]
        first = self._features(pixels[:, 0])
        if "emb" not in info:
            info["emb"] = self._latents(first)[:, None].expand(-1, pixels.shape[1], -1, -1)
        if "goal" not in info:
            info[_CAPACITIES] = (self._without_goal(),) * len(pixels)
            return
        goal = info["goal"][:, 0]
        wanted = self._features(goal)
        if "goal_emb" not in info:
            info["goal_emb"] = self._latents(wanted)
        info[_CAPACITIES] = self._choose(torch.stack([first[:, 0], wanted[:, -1]], 1), goal)

    def _without_goal(self) -> int:
        """Nothing is reached for, so there is nothing to choose by: a fixed capacity, or the whole latent."""
        return self.rule.named[0] if self.rule.named else self.model.support.capacities[-1]

    def _choose(self, features: Float[Tensor, "B 2 W"], goal: Tensor) -> tuple[int, ...]:
        names = [hashlib.blake2b(image.cpu().contiguous().numpy().tobytes(), digest_size=6).digest() for image in goal]
        q = self.model.capacity_logits(features).softmax(-1)
        numbers = [int.from_bytes(name, "big") for name in names]
        choices = self.rule.choices(q, self.model.support, self.seed, numbers)
        return tuple(self._chosen.setdefault(name, tried[0]) for name, tried in zip(names, choices, strict=True))

    def _imagine(
        self,
        context: Float[Tensor, "B H D"],
        past: Float[Tensor, "B S past A"] | None,
        candidates: Float[Tensor, "B S horizon A"],
        capacity: int,
    ) -> list[Float[Tensor, "B S _"]]:
        B, S, horizon, _ = candidates.shape
        reach, latent_dim = self.model.config.predictor.context_length, context.shape[-1]
        last_width = compared_width(self.goal_cost, capacity, latent_dim)
        if self.distilled is not None and capacity in self.distilled.capacities:
            # Distilled dynamics read the latest frame only.
            z_now = context[:, -1]
            return sliced_roll_out(self.distilled, z_now, candidates, capacity, last_width=last_width, context=reach)
        if context.shape[1] == 1:
            return sliced_roll_out(
                self.model, context[:, 0], candidates, capacity, last_width=last_width, context=reach
            )
        assert past is not None
        blocks = torch.cat([past, candidates], 2).flatten(0, 1)
        history = list(context[..., :capacity].repeat_interleave(S, 0).unbind(1))
        num_seen = len(history)
        for t in range(num_seen, num_seen + horizon):
            seen = slice(max(0, t - reach), t)
            width = last_width if t == num_seen + horizon - 1 else capacity
            z = torch.stack(history[seen], 1)
            history.append(next_latent(self.model, z, blocks[:, seen], width, latent_dim))
        return [z_hat.reshape(B, S, -1) for z_hat in history[num_seen:]]

    def _features(self, pixels: Tensor) -> Float[Tensor, "B T W"]:
        pixels = pixels.to(self._device)
        if not pixels.is_floating_point():
            return self.model.encode(pixels).features
        _check_normalised(pixels, self.model.image_size)
        features: Tensor = self.model.encoder(self._ready(pixels).flatten(0, 1).movedim(1, -1))
        return features.view(*pixels.shape[:2], -1)

    def _latents(self, features: Float[Tensor, "B T W"]) -> Float[Tensor, "B T D"]:
        latents: Tensor = self.model.projector(features)
        return latents

    def _goal(self, info: Info) -> Float[Tensor, "B D"]:
        goal: Tensor = info["goal_emb"]
        return (goal[:, 0] if goal.ndim == 4 else goal)[:, -1]

    def _ready(self, values: Tensor) -> Tensor:
        return values.to(self._device, self.model.log_prior.dtype)

    @property
    def _device(self) -> torch.device:
        return self.model.log_prior.device


def pretrained_cost(
    config: Mapping[str, Any],
    capacity: str = "modal",
    goal_cost: GoalCost = "active",
    action_statistics: Mapping[str, Any] | None = None,
) -> PlanningCost:
    """What the folder of `alewm export-lewm --whole` becomes in stable-worldmodel's `load_pretrained`.

    It fills in the weights afterwards. `load_pretrained(path, extra_args={"capacity": "16"})` plans with another rule.
    """
    model = build_world_model(from_dict(WorldModelConfig, _plain(config)), torch.Generator())
    cost = PlanningCost(model.requires_grad_(requires_grad=False), capacity=str(capacity), goal_cost=goal_cost)
    if action_statistics is not None:
        cost.action_scaler = ActionScaler(ActionStatistics.from_dict(_plain(action_statistics)))
    return cost


def _plain(values: Any) -> Any:
    """The dictionaries and lists in a configuration object."""
    if isinstance(values, Mapping):
        return {str(name): _plain(value) for name, value in values.items()}
    return (
        [_plain(value) for value in values] if isinstance(values, Sequence) and not isinstance(values, str) else values
    )


class ActionScaler:
    """Action statistics as the policy's `process` wants them: `transform` and `inverse_transform`."""

    def __init__(self, statistics: ActionStatistics) -> None:
        self.statistics = statistics

    @classmethod
    def of(cls, description: Description, data_set: str = "") -> "ActionScaler":
        """The scaler that travels in a checkpoint, of one of its data sets if there are several."""
        return cls(data_set_of(description, data_set).statistics)

    def transform(self, actions: np.ndarray) -> np.ndarray:
        """Z-scores of actions [..., A]."""
        return self.statistics.normalize(actions)

    def inverse_transform(self, scores: np.ndarray) -> np.ndarray:
        """The environment's actions of which these are the z-scores."""
        return self.statistics.denormalize(scores)


def _check_normalised(pixels: Tensor, image_size: int) -> None:
    """Refuse floats that are not frames of the encoder's size, normalised as a policy's transform does."""
    if pixels.ndim != 5 or pixels.shape[2] != 3:
        raise InputError(
            f"Normalised frames are [B, T, 3, Y, X], got {list(pixels.shape)}. Leave out the policy's `transform` of "
            f"pixels and goal: the model takes uint8 frames as the environment draws them."
        )
    height, width = pixels.shape[3:]
    check_float_size(height, width, image_size)
    low, high = extremes(pixels)
    is_normalised = low >= _LOWEST - _SLACK and high <= _HIGHEST + _SLACK and (low < 0 or high > 1)
    if not is_normalised:
        raise InputError(
            f"Float frames must be normalised with ImageNet's statistics ({_LOWEST:.2f} to {_HIGHEST:.2f}), got "
            f"numbers from {low:.4g} to {high:.4g}. Leave out the policy's `transform` of pixels and goal: the model "
            f"takes uint8 frames as the environment draws them."
        )


_LOWEST, _HIGHEST = (
    extreme((value - mean) / std for mean, std in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True))
    for extreme, value in ((min, 0), (max, 1))
)
_SLACK = 0.05
"""How far resampling may take a normalised pixel beyond black or white."""

MOST_IMAGES = 2048
"""Images remembered, the latest: two for each episode that is planned at once."""


@runtime_checkable
class Dynamics(Protocol):
    """The interface of a foreign model."""

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
        """Latents of pixels [B, F, 3, Y, X] as they are stored; they also stand for features, which are not used."""
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
