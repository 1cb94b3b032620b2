"""Distilled dynamics: a small network that predicts the k coordinates a plan uses, in place of the wide predictor.

A plan in a prefix of k coordinates has k numbers as its state. The network maps them and one action block to the next k
numbers, so a rollout of H blocks is H small matrix products instead of H passes through a transformer:

    w = (z - mean) / std                           standardised prefix
    w <- w + f(w, a)     for each of H blocks      f: two hidden layers
    z = mean + std * w

It remembers no history: a plan starts from one frame, and what follows depends on that frame and the actions alone.

On disk a folder `distilled/` beside the checkpoints holds one folder per capacity, `k4/` for example, with the network
and `distilled.json` (`alewm.runs.fitted`).
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from alewm.capacity.support import CapacitySupport
from alewm.config import Count, check_ranges, from_dict
from alewm.errors import InputError
from alewm.model.checkpoint_files import file_sha256
from alewm.model.world_model import Encoding, WorldModel
from alewm.runs.fitted import NETWORK, FittedKind
from alewm.shapes import Float, Tensor

DISTILLED = "distilled"
"""The folder in a run folder."""


@dataclass(frozen=True)
class DynamicsConfig:
    """Sizes of the network."""

    capacity: Count
    """Coordinates it predicts (k)."""
    action_dim: Count
    """Numbers in one action block."""
    hidden_dim: Count = 128
    """Units of each of the two hidden layers."""

    def __post_init__(self) -> None:
        check_ranges(self)


class DistilledDynamics(nn.Module):
    """The next k coordinates from these k and an action block; a new one has zero weights and predicts no change."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: DynamicsConfig) -> None:
        super().__init__()
        self.config = config
        k, hidden = config.capacity, config.hidden_dim
        self.state_layer = _zero_layer(k, hidden, bias=False)
        self.action_layer = _zero_layer(config.action_dim, hidden)
        self.hidden_layer = _zero_layer(hidden, hidden)
        self.output_layer = _zero_layer(hidden, k)
        self.register_buffer("mean", torch.zeros(k))
        self.register_buffer("std", torch.ones(k))

    def imagine(self, z_first: Float[Tensor, "N k"], actions: Float[Tensor, "N H A"]) -> list[Float[Tensor, "N k"]]:
        """The H prefixes that follow `z_first` under H action blocks."""
        # The actions of all H blocks enter the first layer in one product; each step then adds the state's part.
        driven = self.action_layer(actions.transpose(0, 1))
        w, latents = (z_first - self.mean) / self.std, []
        for block in driven:
            hidden = functional.silu(torch.addmm(block, w, self.state_layer.weight.T))
            w = w + self.output_layer(functional.silu(self.hidden_layer(hidden)))
            latents.append(torch.addcmul(self.mean, w, self.std))
        return latents


DYNAMICS = FittedKind(
    "distilled dynamics",
    "distilled.json",
    "alewm distill RUN (--out names another folder).",
    lambda sizes: DistilledDynamics(from_dict(DynamicsConfig, sizes)),
)


class DistilledModel(nn.Module):
    """A world model that looks with its own encoder and imagines with distilled dynamics.

    Offers all that planning asks for (`PlanningModel`, `PrefixImagination`). There is one network per capacity. An
    episode that chose a capacity without one is planned with the model's own predictor, which is slower but never
    wrong by another prefix's error; the first such plan is announced on stderr and `own_capacities` remembers it.
    """

    def __init__(
        self,
        model: WorldModel,
        dynamics: Mapping[int, DistilledDynamics],
        fits: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`fits` say by capacity how each network was fitted and which file it is, where they come from files."""
        super().__init__()
        if not dynamics:
            raise InputError("There are no distilled dynamics to plan with; `alewm distill RUN` makes them.")
        for capacity, network in dynamics.items():
            _check_fits(model, capacity, network)
        self.model = model
        self.dynamics = nn.ModuleDict({str(capacity): network for capacity, network in sorted(dynamics.items())})
        self.fits = dict(fits or {})
        self.own_capacities: set[int] = set()
        self.eval()

    @property
    def capacities(self) -> tuple[int, ...]:
        """The capacities that have a network."""
        return tuple(map(int, self.dynamics))

    @property
    def support(self) -> CapacitySupport:
        """The capacities the world model may use."""
        return self.model.support

    @property
    def image_size(self) -> int:
        """Pixels per side of the images that the encoder reads."""
        return self.model.image_size

    @property
    def action_dim(self) -> int:
        return self.model.action_dim

    @property
    def context_length(self) -> int:
        """Most positions the model's own predictor reads; the networks read one."""
        return self.model.context_length

    def encode(self, pixels: Tensor) -> Encoding:
        """Features and latents, by the world model."""
        return self.model.encode(pixels)

    def capacity_logits(self, features: Float[Tensor, "B F W"]) -> Float[Tensor, "B C"]:
        """Logits of q, by the world model."""
        return self.model.capacity_logits(features)

    def imagine_prefix(
        self, z_first: Float[Tensor, "N k"], actions: Float[Tensor, "N H A"], last_width: int, context: int
    ) -> list[Float[Tensor, "N _"]]:
        """The H prefixes that follow `z_first`, by the network of its capacity where there is one."""
        capacity = z_first.shape[1]
        if str(capacity) not in self.dynamics:
            if capacity not in self.own_capacities:
                self.own_capacities.add(capacity)
                print(
                    f"No dynamics were distilled for capacity {capacity} (there are {', '.join(self.dynamics)}): "
                    f"episodes that choose it are planned with the model's own predictor. `alewm distill RUN "
                    f"--capacity {capacity}` adds them.",
                    file=sys.stderr,
                )
            return self.model.imagine_prefix(z_first, actions, last_width, context)
        if last_width != capacity:
            raise InputError(
                f"The full goal cost compares {last_width} coordinates, but these distilled dynamics predict "
                f"{capacity}. Use --goal-cost active, or plan without --dynamics."
            )
        network = self.dynamics[str(capacity)]
        assert isinstance(network, DistilledDynamics)
        return network.imagine(z_first, actions)


def load_distilled(model: WorldModel, weights_sha256: str, folder: Path) -> DistilledModel:
    """`model` with the distilled dynamics in `folder`, which must have been fitted to these very weights."""
    found = distilled_capacities(folder)
    if not found:
        raise InputError(f"{folder} holds no distilled dynamics. Make them with `alewm distill RUN`.")
    device = model.log_prior.device
    networks = {k: DYNAMICS.read(path, weights_sha256).to(device) for k, path in found.items()}
    return DistilledModel(model, networks, {str(k): _fit_of(path) for k, path in found.items()})


def _fit_of(folder: Path) -> dict[str, Any]:
    """What the records of an evaluation keep about the network in `folder`."""
    description = DYNAMICS.describe(folder)
    names = ("settings", "parameters", "training_windows", "validation_error", "seconds")
    kept = {name: description[name] for name in names if name in description}
    return {"sha256": file_sha256(folder / NETWORK), **kept}


def distilled_capacities(folder: Path) -> dict[int, Path]:
    """The folders of the networks in `folder`, by capacity."""
    found = {int(path.name[1:]): path for path in folder.glob("k*") if re.fullmatch(r"k[1-9]\d*", path.name)}
    return dict(sorted(found.items()))


def _zero_layer(num_inputs: int, num_outputs: int, *, bias: bool = True) -> nn.Linear:
    # The library's first weights would be drawn from the global generator.
    layer = nn.utils.skip_init(nn.Linear, num_inputs, num_outputs, bias=bias)  # type: ignore[no-untyped-call]
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    assert isinstance(layer, nn.Linear)
    return layer


def _check_fits(model: WorldModel, capacity: int, network: DistilledDynamics) -> None:
    model.support.index_of(capacity)
    config = network.config
    if (config.capacity, config.action_dim) != (capacity, model.config.action_dim):
        raise InputError(
            f"Dynamics of {config.capacity} coordinates and action blocks of {config.action_dim} numbers do not fit a "
            f"model of {capacity} coordinates and action blocks of {model.config.action_dim}."
        )
