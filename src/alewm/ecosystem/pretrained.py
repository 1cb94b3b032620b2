"""A run folder reduced to what others need: weights, settings, results and a card; it is still a run folder.

    config.json  provenance.json  result.json  splits.json    as in the run, without this machine's paths
    metrics.jsonl  episodes.jsonl                             where the run has them
    pairs.safetensors                                         starts and goals held out, where the data is there
    checkpoints/step-<n>/model.safetensors                    the newest weights
    checkpoints/step-<n>/checkpoint.json                      architecture, action statistics, data fingerprint
    README.md                                                 the model card

`alewm evaluate` and `alewm report` take such a folder like any other run. With its pairs inside, evaluation needs
nothing else; without, it needs the data file the run was trained on, or one made again by the command in the card: its
fingerprint is compared.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from alewm.ecosystem.model_card import model_card
from alewm.errors import InputError
from alewm.evaluation.find_pairs import pairs_in_data
from alewm.evaluation.run import SHARED_AS
from alewm.evaluation.settings import Split
from alewm.evaluation.travelling_pairs import PAIRS, save_pairs
from alewm.model.world_model import WorldModel
from alewm.runs.files import read_json, write_json, write_text
from alewm.runs.portable import portable
from alewm.shapes import Tensor
from alewm.training.checkpoint import Description, load_world_model, read_description, save_weights
from alewm.training.run import SPLITS, latest_checkpoint

WeightType = Literal["float32", "bfloat16"]
"""How matrices are stored; vectors (norms, biases, running moments) always stay float32."""

_COPIED = (SPLITS, "metrics.jsonl", "episodes.jsonl")


@dataclass(frozen=True)
class SharedRun:
    """What a run has to share."""

    model: WorldModel
    """The newest weights, in evaluation mode."""
    description: Description
    """What is known about them, without this machine's paths."""
    result: dict[str, Any]
    """The content of result.json."""
    provenance: dict[str, Any]
    """The content of provenance.json, without this machine's paths."""

    @classmethod
    def of(cls, run: Path, weights: WeightType = "float32") -> "SharedRun":
        """What the run folder `run` has to share, with matrices stored as `weights`."""
        if weights not in ("float32", "bfloat16"):
            raise InputError(f"Weights are stored as float32 or bfloat16, got {weights!r}.")
        model, description = load_world_model(latest_checkpoint(run))
        extras = portable({**description.extras, SHARED_AS: weights})
        provenance, result = (portable(_content(run / name)) for name in ("provenance.json", "result.json"))
        return cls(model, replace(description, source_state={}, extras=extras), result, provenance)

    def card(self, name: str, *, brings_pairs: bool) -> str:
        """The model card."""
        return model_card(name, self.description, self.model, self.result, self.provenance, brings_pairs=brings_pairs)


def save_pretrained(run: Path, out: Path, weights: WeightType = "float32") -> Path:
    """The new folder `out` with the newest checkpoint of `run`, ready to be shared."""
    check_new(out)
    shared = SharedRun.of(run, weights)
    out.mkdir(parents=True, exist_ok=True)
    save_weights(out / "checkpoints", shared.description, _stored(shared.model.state_dict(), weights))
    for name in (*_COPIED, PAIRS):
        if (run / name).is_file():
            shutil.copyfile(run / name, out / name)
    if not (out / PAIRS).is_file():
        _save_held_out_pairs(run, out)
    write_json(out / "result.json", shared.result)
    write_json(out / "provenance.json", shared.provenance)
    write_text(out / "README.md", shared.card(out.resolve().name, brings_pairs=(out / PAIRS).is_file()))
    write_json(out / "config.json", read_json(run / "config.json"))  # last: from now on it is a run folder
    return out


def _save_held_out_pairs(run: Path, out: Path) -> None:
    """The pairs, where the data file is still where the run was trained; without it they cannot be known."""
    description = read_description(latest_checkpoint(run))
    data: dict[str, Any] = description.extras.get("data", {})
    path, fingerprint = data.get("path"), data.get("fingerprint")
    if path is not None and fingerprint is not None and Path(path).is_file():
        held_out: tuple[Split, ...] = ("validation", "test")
        pairs = {str(split): pairs_in_data(run, Path(path), description, split) for split in held_out}
        save_pairs(out / PAIRS, pairs, fingerprint)


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
