"""Import LeWM weights as a run, and export a run as a LeWM checkpoint that stable-worldmodel loads by name.

LeWM has no selector, no support and no input map. What that means for each model:

| model                         | exported as                                                                        |
|-------------------------------|------------------------------------------------------------------------------------|
| LeWM, D = W                   | itself, tensor by tensor                                                           |
| ALeWM, D = W                  | its encoder and predictor at full width; capacities are gone                       |
| any, D = W, capacity k        | embedding and prediction are zero beyond k: planning at k, goal cost included      |
| any, D < W                    | the input map M, b is folded into both projectors: the embedding is M z + b        |

LeWM's encoder is transformers' ViT, whose parameters have other names since transformers 5. stable-worldmodel loads
strictly, so a file serves one of the two. Names are those of the transformers installed here, or of 5 where none is.

In the last case the embedding has W coordinates and predictions are ours seen through the map, to rounding; distances
are not: |M (z - z')| weighs the directions of the latent by M, so plans may differ from ours.
"""

from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from alewm.config import late_field_defaults, to_dict
from alewm.data.action_statistics import ActionStatistics
from alewm.data.collect import recipe_of
from alewm.data.splits import Splits, load_or_make_splits
from alewm.data.store import EpisodeStore
from alewm.envs.registry import get_task
from alewm.envs.task import Task
from alewm.errors import InputError
from alewm.interop.hub import is_hub_id, licence_in_card
from alewm.interop.lewm_format import (
    CONFIG,
    Generation,
    LeWMFiles,
    configuration_of,
    description_of,
    from_lewm,
    read_lewm,
    to_lewm,
    write_lewm,
)
from alewm.model.world_model import WorldModel, WorldModelConfig, build_world_model
from alewm.runs.folder import RunFolder, only_writer
from alewm.shapes import FRAME_SKIP, Tensor
from alewm.training.checkpoint import (
    SPLITS,
    Description,
    data_sets_of,
    latest_checkpoint,
    load_world_model,
    save_weights,
)
from alewm.training.config import ObjectiveConfig, RunConfig


@dataclass(frozen=True)
class _Data:
    """What a data file adds to weights that came without it."""

    task: str | None
    statistics: ActionStatistics
    splits: Splits
    identity: dict[str, Any]


def load_lewm(path: Path) -> WorldModel:
    """The model in a LeWM checkpoint (a folder or a `.pt` file), on the CPU and in evaluation mode."""
    files = read_lewm(path)
    return _model_of(files, _configuration(files))


def import_lewm(
    path: Path,
    out: Path,
    *,
    task: str | None = None,
    data_path: Path | None = None,
    action_mean: tuple[float, ...] = (),
    action_std: tuple[float, ...] = (),
    rounds_pixels: bool = False,
    license_id: str | None = None,
) -> RunFolder:
    """A new run in `out` with the LeWM weights at `path`; `rounds_pixels` if they were trained in mixed precision.

    `path` is a folder, a `.pt` file or a repository of the Hub. The licence is what its card states, or `license_id`.

    The files hold neither the task nor how actions were normalised. Statistics come from the training episodes of
    `data_path`, or from `action_mean` and `action_std`, which win; the task from the file's label or from `task`.
    """
    files = read_lewm(path)
    given = _given_statistics(action_mean, action_std)
    config = _configuration(files)
    if rounds_pixels:
        config = replace(config, encoder=replace(config.encoder, patch_map_in_bfloat16=True))
    data = _read_data(data_path) if data_path is not None else None
    statistics = given if given is not None else _statistics_of(data)
    chosen = _task(task, data, data_path)
    _check_actions(config, chosen, statistics)
    model = _model_of(files, config)

    run_config = RunConfig(task=chosen.name, model=config, objective=ObjectiveConfig(method="lewm"))
    origin = {"format": "lewm", "file": files.weights_path.name, "sha256": files.sha256}
    folder_of_weights = files.weights_path.parent
    origin |= {"repository": str(path), "revision": folder_of_weights.name} if is_hub_id(path) else {}
    stated = licence_in_card(folder_of_weights)
    if license_id is not None and stated not in (None, license_id):
        raise InputError(f"The card beside the weights states the licence {stated!r}, --license says {license_id!r}.")
    if (licence := license_id or stated) is not None:
        origin["license"] = licence
    identity = data.identity if data is not None else {"path": None, "fingerprint": None}
    extras: dict[str, Any] = {
        "task": chosen.name,
        "frame_skip": FRAME_SKIP,
        "action_statistics": statistics.to_dict(),
        "data": identity,
        "imported_from": origin,
    }
    described = {**to_dict(run_config), "imported_from": origin, "action_statistics": statistics.to_dict()}
    described["data"] = {name: value for name, value in identity.items() if name != "path"}
    folder = RunFolder(out, late_field_defaults(RunConfig))
    folder.check(described)  # before a lock is put into it
    with only_writer(out):
        folder.open(described, data=identity)
        if data is not None:
            data.splits.save(out / SPLITS)
        checkpoint = save_weights(folder.checkpoints, Description(0, run_config, {}, extras), model.state_dict())
        known = folder.result()
        folder.finish({**known, "training": {"step": 0, "checkpoint": str(checkpoint.relative_to(out)), **origin}})
    return folder


def _configuration(files: LeWMFiles) -> WorldModelConfig:
    """Our configuration of the model in `files`; what does not fit is refused with the file that says it."""
    try:
        return configuration_of(files.state, files.config)
    except (InputError, TypeError, ValueError, OverflowError) as error:
        says = files.weights_path.parent / CONFIG if files.config else files.weights_path
        raise InputError(f"{says}: {error}") from error


def _model_of(files: LeWMFiles, config: WorldModelConfig) -> WorldModel:
    model = build_world_model(config, torch.Generator())
    model.load_state_dict(from_lewm(files.state, model.state_dict()))
    return model.eval()


def _given_statistics(mean: tuple[float, ...], std: tuple[float, ...]) -> ActionStatistics | None:
    if bool(mean) != bool(std):
        raise InputError("--action-mean and --action-std belong together, one number per action dimension each.")
    return ActionStatistics(mean, std) if mean else None


def _statistics_of(data: _Data | None) -> ActionStatistics:
    if data is None:
        raise InputError(
            "LeWM's files do not say how actions were normalised, and a plan cannot be executed without. Give --data "
            "FILE (statistics of its training episodes), or --action-mean and --action-std with one number per action "
            "dimension."
        )
    return data.statistics


def _read_data(path: Path) -> _Data:
    with EpisodeStore.open(path) as store:
        splits = load_or_make_splits(store)
        identity: dict[str, Any] = {
            "path": str(store.path.resolve()),
            "fingerprint": store.fingerprint,
            "episodes": store.num_episodes,
            "frames": store.num_frames,
            **recipe_of(store),
        }
        statistics = ActionStatistics.of_training(store, splits)
        return _Data(store.attributes.get("task"), statistics, splits, identity)


def _task(asked: str | None, data: _Data | None, data_path: Path | None) -> Task:
    labelled = data.task if data is not None else None
    if asked is not None and labelled is not None and asked != labelled:
        raise InputError(f"{data_path} holds episodes of {labelled!r}, but --task says {asked!r}.")
    name = asked or labelled
    if name is None:
        raise InputError("LeWM's files do not name their task. Give --task, for example --task two-room.")
    return get_task(name)


def _check_actions(config: WorldModelConfig, task: Task, statistics: ActionStatistics) -> None:
    if config.action_dim != FRAME_SKIP * task.action_dim:
        raise InputError(
            f"The weights read action blocks of {config.action_dim} numbers, but {task.name!r} has {task.action_dim} "
            f"numbers per action and {FRAME_SKIP} actions per block. Is --task right?"
        )
    if statistics.action_dim != task.action_dim:
        raise InputError(
            f"Action statistics of {statistics.action_dim} dimensions were given, but {task.name!r} has "
            f"{task.action_dim}."
        )


_PROJECTORS = ("projector", "prediction_projector")


@dataclass(frozen=True)
class Exported:
    """What was written, and what LeWM's format could not take."""

    path: Path
    """The folder with config.json and weights.pt."""
    notes: tuple[str, ...]
    """One sentence for everything the format has no place for, and for whom the names of the encoder are."""


def names_of_installed_transformers() -> Generation:
    """Whose encoder names stable-worldmodel needs in this environment; those of transformers 5 where none is found."""
    try:
        return 4 if int(metadata.version("transformers").split(".")[0]) < 5 else 5
    except (metadata.PackageNotFoundError, ValueError):
        return 5


def export_lewm(run: Path, out: Path, *, capacity: int | None = None, generation: Generation | None = None) -> Exported:
    """The newest checkpoint of `run` as a LeWM checkpoint in the new folder `out`.

    `generation` is the major version of transformers beside stable-worldmodel where it is loaded; None asks this
    environment.
    """
    model, _ = load_world_model(latest_checkpoint(run))
    names = generation or names_of_installed_transformers()
    config, state, warnings = as_lewm_checkpoint(model, capacity=capacity, generation=names)
    other = 4 if names == 5 else 5
    note = f"The encoder's names are those of transformers {names}; where transformers {other} is installed, --names "
    return Exported(write_lewm(out, config, state), (*warnings, f"{note}{other} writes what loads there."))


def export_alewm(run: Path, out: Path) -> Exported:
    """The newest checkpoint of `run`, whole, as a folder that stable-worldmodel's `load_pretrained` opens.

    The target in config.json is `alewm.interop.stable_worldmodel.pretrained_cost`, so alewm must be installed there.
    """
    model, description = load_world_model(latest_checkpoint(run))
    config: dict[str, Any] = {
        "_target_": "alewm.interop.stable_worldmodel.pretrained_cost",
        "config": to_dict(model.config),
        "capacity": "modal",
        "goal_cost": "active",
    }
    data_sets = data_sets_of(description).values()
    if len(data_sets) == 1:  # whose actions a plan is made of, several data sets do not say
        config["action_statistics"] = next(iter(data_sets)).statistics.to_dict()
    state = {f"model.{name}": tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    return Exported(write_lewm(out, config, state), ())


def as_lewm_checkpoint(
    model: WorldModel, *, capacity: int | None = None, generation: Generation = 5
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
