"""A run of ours as a LeWM checkpoint, which stable-worldmodel loads by name.

LeWM has no selector, no support and no input map. What that means for each model:

| model                         | exported as                                                                        |
|-------------------------------|------------------------------------------------------------------------------------|
| LeWM, D = W                   | itself, tensor by tensor                                                           |
| ALeWM, D = W                  | its encoder and predictor at full width; capacities are gone                       |
| any, D = W, capacity k        | embedding and prediction are zero beyond k: planning at k, goal cost included      |
| any, D < W                    | the input map M, b is folded into both projectors: the embedding is M z + b        |

In the last case the embedding has W coordinates and predictions are ours seen through the map, to rounding; distances
are not: |M (z - z')| weighs the directions of the latent by M, so plans may differ from ours.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alewm.ecosystem.lewm_architecture import description_of
from alewm.ecosystem.lewm_files import write_lewm
from alewm.model.lewm_names import Generation, to_lewm
from alewm.model.world_model import WorldModel
from alewm.shapes import Tensor
from alewm.training.checkpoint import load_world_model
from alewm.training.run import latest_checkpoint

_PROJECTORS = ("projector", "prediction_projector")


@dataclass(frozen=True)
class Exported:
    """What was written, and what LeWM's format could not take."""

    path: Path
    """The folder with config.json and weights.pt."""
    warnings: tuple[str, ...]
    """One sentence for everything the format has no place for."""


def export_lewm(run: Path, out: Path, *, capacity: int | None = None, generation: Generation = 4) -> Exported:
    """The newest checkpoint of `run` as a LeWM checkpoint in the new folder `out`."""
    model, _ = load_world_model(latest_checkpoint(run))
    config, state, warnings = as_lewm_checkpoint(model, capacity=capacity, generation=generation)
    return Exported(write_lewm(out, config, state), warnings)


def as_lewm_checkpoint(
    model: WorldModel, *, capacity: int | None = None, generation: Generation = 4
) -> tuple[dict[str, Any], dict[str, Tensor], tuple[str, ...]]:
    """The config.json and the state dict of `model` as a LeWM, and what is lost."""
    config = model.config
    if capacity is not None:
        config.support.index_of(capacity)
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    warnings = []
    if capacity is None and len(config.support) > 1:
        warnings.append(
            f"LeWM has no capacities: the model is exported at its full width {config.latent_dim}, and plans will use "
            f"all of it. --capacity K exports it at one of {', '.join(map(str, config.capacities))}."
        )
    elif capacity is not None and capacity < config.latent_dim:
        state |= _cut(state, capacity)
    if config.has_selector:
        warnings.append("The capacity network is left out: LeWM has no place for it.")
    if config.latent_dim < config.encoder.hidden_dim:
        state |= _folded(state)
        warnings.append(
            f"LeWM's predictor reads its embedding without a map, ours maps {config.latent_dim} coordinates to "
            f"{config.encoder.hidden_dim}: the map is folded into both projectors. Predictions stay ours, seen through "
            f"that map; distances to a goal, and so plans, are weighed by it."
        )
    return description_of(config), to_lewm(state, config.encoder.patch_size, generation), tuple(warnings)


def _cut(state: dict[str, Tensor], capacity: int) -> dict[str, Tensor]:
    """The last maps of both projectors with zeros beyond `capacity`."""
    changed = {}
    for projector in _PROJECTORS:
        for leaf in ("weight", "bias"):
            name = f"{projector}.narrow.{leaf}"
            changed[name] = state[name].clone()
            changed[name][capacity:] = 0
    return changed


def _folded(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The last maps of both projectors followed by the predictor's input map."""
    weight, bias = (state[f"predictor.input_map.{leaf}"].double() for leaf in ("weight", "bias"))
    changed = {}
    for projector in _PROJECTORS:
        narrow, offset = (state[f"{projector}.narrow.{leaf}"].double() for leaf in ("weight", "bias"))
        changed[f"{projector}.narrow.weight"] = (weight @ narrow).float()
        changed[f"{projector}.narrow.bias"] = (weight @ offset + bias).float()
    return changed
