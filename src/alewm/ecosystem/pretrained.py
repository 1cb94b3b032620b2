"""A run folder reduced to what others need: weights, settings, results and a card; it is still a run folder.

    config.json  provenance.json  result.json  splits*.json   as in the run, without this machine's paths
    metrics.jsonl  episodes.jsonl                             where the run has them
    checkpoints/step-<n>/model.safetensors                    the newest weights
    checkpoints/step-<n>/checkpoint.json                      architecture, action statistics, data fingerprint
    README.md                                                 the model card

`alewm evaluate` and `alewm report` take such a folder like any other run. Evaluation needs the data file the run was
trained on, or one made again by the command in the card: its fingerprint is compared.
"""

import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from alewm.ecosystem.model_card import model_card
from alewm.errors import InputError
from alewm.evaluation.settings import EVALUATIONS
from alewm.model.world_model import WorldModel
from alewm.runs.files import read_json, write_json, write_text
from alewm.shapes import Tensor
from alewm.training.checkpoint import Description, load_world_model, save_weights
from alewm.training.data_sets import DATA_SETS
from alewm.training.run import latest_checkpoint

WeightType = Literal["float32", "bfloat16"]
"""How matrices are stored; vectors (norms, biases, running moments) always stay float32."""

_COPIED = ("splits*.json", "metrics.jsonl", "episodes.jsonl")


@dataclass(frozen=True)
class SharedRun:
    """What a run has to share."""

    model: WorldModel
    """The newest weights, in evaluation mode."""
    description: Description
    """What is known about them, without this machine's paths."""
    result: dict[str, Any]
    """The content of result.json."""
    results_apart: dict[str, dict[str, Any]]
    """What was reached on each data set, of a run that learned from several."""
    provenance: dict[str, Any]
    """The content of provenance.json, without this machine's paths."""

    @classmethod
    def of(cls, run: Path, weights: WeightType = "float32") -> "SharedRun":
        """What the run folder `run` has to share, with matrices stored as `weights`."""
        if weights not in ("float32", "bfloat16"):
            raise InputError(f"Weights are stored as float32 or bfloat16, got {weights!r}.")
        model, description = load_world_model(latest_checkpoint(run))
        extras = {**description.extras, "weights": weights}
        if "data" in extras:
            extras["data"] = _without_folder(extras["data"])
        apart = {
            name: each | {"data": _without_folder(each["data"])} for name, each in extras.get(DATA_SETS, {}).items()
        }
        if apart:
            extras[DATA_SETS] = apart
        provenance, result = _content(run / "provenance.json"), _content(run / "result.json")
        results = {name: _content(run / EVALUATIONS / name / "result.json") for name in apart}
        if isinstance(provenance.get("data"), dict):
            data = provenance["data"]
            is_mixed = data.keys() == apart.keys()
            provenance["data"] = {n: _without_folder(d) for n, d in data.items()} if is_mixed else _without_folder(data)
        for made in (provenance, *(each.get("made_with", {}) for each in (result, *results.values()))):
            if "command" in made:
                made["command"] = _without_folders(made["command"])
        return cls(model, replace(description, source_state={}, extras=extras), result, results, provenance)

    def card(self, name: str) -> str:
        """The model card."""
        return model_card(name, self.description, self.model, self.result, self.provenance, self.results_apart)


def save_pretrained(run: Path, out: Path, weights: WeightType = "float32") -> Path:
    """The new folder `out` with the newest checkpoint of `run`, ready to be shared."""
    check_new(out)
    shared = SharedRun.of(run, weights)
    out.mkdir(parents=True, exist_ok=True)
    save_weights(out / "checkpoints", shared.description, _stored(shared.model.state_dict(), weights))
    for path in (path for pattern in _COPIED for path in sorted(run.glob(pattern))):
        shutil.copyfile(path, out / path.name)
    write_json(out / "result.json", shared.result)
    write_json(out / "provenance.json", shared.provenance)
    write_text(out / "README.md", shared.card(out.resolve().name))
    write_json(out / "config.json", read_json(run / "config.json"))  # last: from now on it is a run folder
    return out


def check_new(folder: Path) -> None:
    """Refuse a folder that is in use; nothing in it is touched."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already and is not empty; give a new folder.")


def _stored(state: dict[str, Tensor], weights: WeightType) -> dict[str, Tensor]:
    if weights == "float32":
        return state
    return {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() and tensor.ndim > 1 else tensor
        for name, tensor in state.items()
    }


def _content(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _without_folder(data: dict[str, Any]) -> dict[str, Any]:
    """A data description that names the file, not where it lies here."""
    path = data.get("path")
    return {**data, "path": Path(path).name if path is not None else None}


def _without_folders(command: str) -> str:
    """A command whose absolute paths are cut to their last part."""
    words = shlex.split(command)
    return shlex.join(Path(word).name if Path(word).is_absolute() else word for word in words)
