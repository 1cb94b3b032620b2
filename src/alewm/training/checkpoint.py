"""A run's checkpoints: model, optimizer and random streams, the data sets learned from, and a description in words.

`alewm.model.checkpoint_files` reads and writes the files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from alewm.config import from_dict, to_dict
from alewm.data.action_statistics import ActionStatistics
from alewm.data.checks import read_label
from alewm.errors import InputError, unknown_name
from alewm.files import read_if_there, reading
from alewm.model.checkpoint_files import (
    DESCRIPTION,
    MODEL,
    TRAINING,
    check_digests,
    checkpoints_in,
    cure,
    load_weights,
    read_content,
    read_tensors,
    write_checkpoint,
)
from alewm.model.world_model import WorldModel, build_world_model
from alewm.runs.folder import is_number, require_run
from alewm.shapes import Tensor
from alewm.training.config import RunConfig
from alewm.training.metrics import Logbook
from alewm.training.random_streams import RandomStreams, seeded_generator


@dataclass(frozen=True)
class Description:
    """The readable half of a checkpoint."""

    step: int
    """Updates made."""
    config: RunConfig
    """The run it belongs to."""
    source_state: dict[str, Any]
    """Position in the data from which training continues."""
    extras: dict[str, Any]
    """What the caller saved with it: normalisation, data fingerprint, versions."""


def save_checkpoint(
    folder: Path,
    description: Description,
    model: WorldModel,
    optimizer: torch.optim.Optimizer,
    streams: RandomStreams,
) -> Path:
    """Write a new checkpoint under `folder` atomically."""
    tensors = {MODEL: model.state_dict(), TRAINING: _training_tensors(model, optimizer, streams)}
    return write_checkpoint(folder, _described(description), tensors)


def save_weights(folder: Path, description: Description, state: Mapping[str, Tensor]) -> Path:
    """Write a checkpoint without optimizer state: enough to plan with, not to continue training."""
    return write_checkpoint(folder, _described(description), {MODEL: state})


def read_description(checkpoint: Path) -> Description:
    """The validated description of a checkpoint."""
    path, content = checkpoint / DESCRIPTION, read_content(checkpoint)
    try:
        config = from_dict(RunConfig, content["config"])
        values = content["step"], content["source_state"], content["extras"]
        for name, value, kind in zip(("step", "source_state", "extras"), values, (int, dict, dict), strict=True):
            if not isinstance(value, kind):
                raise InputError(f"{name} must be {kind.__name__}, found {type(value).__name__}.")
        found = values[2].get("frame_skip", config.frame_skip)
        if found != config.frame_skip:
            raise InputError(f"the frame skip is {config.frame_skip} in its config and {found} in its extras.")
        return Description(values[0], config, values[1], values[2])
    except KeyError as error:
        raise InputError(f"{path} lacks {error}. {cure(checkpoint)}") from error
    except InputError as error:
        raise InputError(f"{path}: {error} {cure(checkpoint)}") from error


def latest_checkpoint(run: Path) -> Path:
    """The newest checkpoint of the run in `run`."""
    require_run(run)
    saved = checkpoints_in(run / "checkpoints")
    if not saved:
        raise InputError(f"{run} has no checkpoint yet. Repeat its `alewm train` command to train it.")
    return saved[-1]


def load_world_model(checkpoint: Path, device: torch.device | None = None) -> tuple[WorldModel, Description]:
    """The trained model, in evaluation mode, and what is known about it."""
    description = read_description(checkpoint)
    with reading(checkpoint / DESCRIPTION):
        model = build_world_model(description.config.model, torch.Generator())
    load_weights(checkpoint, model)
    return model.to(device or torch.device("cpu")).eval(), description


def load_checkpoint(
    checkpoint: Path, model: WorldModel, optimizer: torch.optim.Optimizer, streams: RandomStreams
) -> Description:
    """Load the saved state into model, optimizer and random streams; return the description."""
    description = read_description(checkpoint)
    load_weights(checkpoint, model)
    tensors = read_tensors(checkpoint / TRAINING)
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        groups.setdefault(kind, {})[rest] = tensor
    streams.load_state_dict(groups.pop("stream", {}))
    parameters = dict(model.named_parameters())
    for kind, moments in groups.items():
        if unknown := sorted(moments.keys() - parameters.keys()):
            raise InputError(f"{checkpoint / TRAINING} has {kind} for unknown parameters {unknown[:5]}.")
        for name, moment in moments.items():
            # Adam's step counts stay in float32 scalars, the moments are like their parameter.
            optimizer.state[parameters[name]][kind] = moment.to(parameters[name].device)
    return description


def _training_tensors(model: WorldModel, optimizer: torch.optim.Optimizer, streams: RandomStreams) -> dict[str, Tensor]:
    tensors = {f"stream/{name}": state for name, state in streams.state_dict().items()}
    for name, parameter in model.named_parameters():
        for kind, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{kind}/{name}"] = value
    return tensors


def _described(description: Description) -> dict[str, Any]:
    return {
        "step": description.step,
        "config": to_dict(description.config),
        "source_state": description.source_state,
        "extras": description.extras,
    }


SPLITS = "splits.json"
"""The file in a run folder that says which episodes were held out."""
DATA_SETS = "data_sets"
"""Key of the entries per data set in a checkpoint of several; a checkpoint of one has them at the top level."""


@dataclass(frozen=True)
class DataSet:
    """What a checkpoint says of one data set."""

    task: str
    """The task whose episodes it holds."""
    statistics: ActionStatistics
    """Of its training actions."""
    data: dict[str, Any]
    """Path and fingerprint of its file, and how it was made; empty for a model imported without a file."""
    splits: str
    """The file in the run folder that says which of its episodes were held out."""

    @property
    def fingerprint(self) -> str | None:
        """Of its file; None for an imported model, whose data are unknown."""
        return self._known("fingerprint")

    @property
    def path(self) -> str | None:
        """Where its file was; None for a model that was imported without one."""
        return self._known("path")

    def _known(self, name: str) -> str | None:
        if name not in self.data:
            raise _foreign()
        found: str | None = self.data[name]
        return found


def data_sets_of(description: Description) -> dict[str, DataSet]:
    """The data sets of a checkpoint by name; a single data set is named after its task."""
    extras, config = description.extras, description.config
    if DATA_SETS in extras:
        return {
            name: _data_set(extras[DATA_SETS][name], task, splits_name(name)) for name, task in config.data_sets.items()
        }
    return {config.task: _data_set(extras, config.task, SPLITS)}


def data_set_of(description: Description, name: str = "") -> DataSet:
    """The data set called `name`; the name is optional if there is only one."""
    found = data_sets_of(description)
    if not name and len(found) > 1:
        raise InputError(f"The model learned from several data sets, {', '.join(found)}; say which one is meant.")
    if name and name not in found:
        raise unknown_name("data set of this run", name, found)
    return found[name] if name else next(iter(found.values()))


def splits_name(data_set: str) -> str:
    """The file in the folder of a run of several data sets that says which episodes of one were held out."""
    return f"splits-{data_set}.json"


def named_tasks(config: RunConfig, paths: Sequence[Path]) -> RunConfig:
    """`config` for the data in `paths`: with several files and one task, the tasks that the files are labelled with."""
    names = list(config.data_sets)
    if len(names) == len(paths):
        return config
    if len(names) > 1:
        raise InputError(
            f"The configuration is for {len(names)} data sets, {', '.join(names)}, but {len(paths)} data files were "
            f"given. Give a --data FILE for each, in this order."
        )
    labels = [read_label(path).task for path in paths]
    for path, label in zip(paths, labels, strict=True):
        if label is None:
            raise InputError(
                f"{path} does not say which task its episodes are of. Name the tasks of all files in their order, for "
                f"example --set task={'+'.join(label or config.task for label in labels)}."
            )
    return replace(config, task="+".join(label for label in labels if label is not None))


def _data_set(values: dict[str, Any], task: str, splits: str) -> DataSet:
    if "action_statistics" not in values:
        raise _foreign()
    return DataSet(task, ActionStatistics.from_dict(values["action_statistics"]), values.get("data", {}), splits)


def _foreign() -> InputError:
    return InputError("The checkpoint does not say which data it learned from; it was not written by `alewm train`.")


def describe_checkpoint(path: Path) -> str:
    """A checkpoint's model, data and position in its training, a line each."""
    description = read_description(path)
    with reading(path / DESCRIPTION):
        lines = [f"{path}: a checkpoint after {description.step:,} updates", *_describe(description)]
    return "\n".join([*lines, _describe_digests([path])])


def describe_run(path: Path) -> str:
    """A run folder: what it trains or has trained, how far it is, and what was measured, a line each."""
    config = read_if_there(path / "config.json")
    saved = checkpoints_in(path / "checkpoints")
    result = read_if_there(path / "result.json")
    if "model" not in config and not saved:
        fields = ", ".join(sorted(config))
        return f"{path}: a run folder that holds no training of a world model; its config has {fields}"
    if "evaluated" in config:
        with reading(path / "config.json"):
            settings = ", ".join(f"{name} {value}" for name, value in config["evaluated"].items())
        return "\n".join([f"{path}: an evaluation", settings, *_success(path, result)])
    lines = [f"{path}: a training run"]
    if saved:
        description = read_description(saved[-1])
        state = "finished" if "training" in result else "unfinished; repeat its command to continue"
        with reading(saved[-1] / DESCRIPTION):
            lines += [f"after {description.step:,} updates, {state}", *_describe(description)]
        lines.append(f"checkpoints: {', '.join(checkpoint.name for checkpoint in saved)}")
        lines.append(_describe_digests(saved))
    else:
        lines.append("no checkpoint yet; repeat its command to train it")
    latest = Logbook(path / "metrics.jsonl").latest()
    shown = ("train/loss", "validation/loss", "validation/prediction", "latent/effective_rank")
    lines += [f"{name}: {latest[name]:.4g}" for name in shown if is_number(latest.get(name))]
    lines += _success(path, result)
    if command := read_if_there(path / "provenance.json").get("command"):
        lines.append(f"made by: {command}")
    return "\n".join(lines)


def _describe_digests(checkpoints: list[Path]) -> str:
    without = [checkpoint.name for checkpoint in checkpoints if not check_digests(checkpoint)]
    if without:
        return f"weights: no digest in {', '.join(without)}, written by an older version; damage would go unnoticed"
    return "weights: equal to their SHA-256"


def _describe(description: Description) -> list[str]:
    config: RunConfig = description.config
    model = build_world_model(config.model, seeded_generator(0, "weights"))
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    capacities = ", ".join(map(str, config.model.capacities))
    size = config.model.encoder.image_size
    lines = [
        f"method {config.objective.method}, task {config.task}, seed {config.training.seed}",
        f"latent of {config.model.latent_dim}, capacities {capacities}; {num_parameters:,} parameters",
        f"reads frames of {size} x {size} and action blocks of {config.model.action_dim} numbers",
    ]
    apart: dict[str, Any] = description.extras.get(DATA_SETS, {})
    for name, extras in (apart or {"": description.extras}).items():
        of = f"{name}: " if name else ""
        if data := extras.get("data", {}):
            lines.append(f"{of}learned from {data.get('path')} (fingerprint {data.get('fingerprint')})")
        if statistics := extras.get("action_statistics"):
            means, stds = (", ".join(f"{value:.4g}" for value in statistics[key]) for key in ("mean", "std"))
            lines.append(f"{of}actions: mean {means}; std {stds}")
    return lines


def _success(path: Path, result: dict[str, Any]) -> list[str]:
    places = {"": path / "result.json", **{p.parent.name: p for p in sorted(path.glob("evaluations/*/result.json"))}}
    lines = []
    for name, place in places.items():
        with reading(place):
            values = read_if_there(place) if name else result
            if "success_rate" in values:
                rates = f"{values['success_rate']:.1%}, random actions {values['random_success_rate']:.1%}"
                lines.append(f"success{f' ({name})' if name else ''}: {rates}")
    return lines
