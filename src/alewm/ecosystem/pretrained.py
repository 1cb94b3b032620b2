"""A run folder reduced to what others need: weights, settings, results and a card; it is still a run folder.

    config.json  provenance.json  result.json  splits*.json   as in the run, without this machine's paths
    metrics.jsonl  episodes.jsonl                             where the run has them
    pairs*.safetensors                                        starts and goals held out, where the data is there
    checkpoints/step-<n>/model.safetensors                    the newest weights
    checkpoints/step-<n>/checkpoint.json                      architecture, action statistics, data fingerprint
    distilled/k<capacity>/                                    small dynamics, where the run was distilled
    README.md                                                 the model card

`alewm evaluate` and `alewm report` take such a folder like any other run. With its pairs inside, evaluation needs
nothing else; without, it needs the data file the run was trained on, or one made again by the command in the card: its
fingerprint is compared.
"""

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from alewm.ecosystem.model_card import model_card
from alewm.errors import InputError
from alewm.evaluation.environment import NoEnvironmentError
from alewm.evaluation.find_pairs import pairs_in_data
from alewm.evaluation.run import SHARED_AS
from alewm.evaluation.settings import EVALUATIONS, EvaluationSettings, Split
from alewm.evaluation.travelling_pairs import pairs_name, save_pairs
from alewm.files import check_new_folder, read_if_there, read_json, write_json, write_text
from alewm.model.world_model import WorldModel
from alewm.planning.distilled import DISTILLED, distilled_capacities, read_dynamics, read_dynamics_description
from alewm.runs.lock import new_folder
from alewm.runs.portable import portable
from alewm.shapes import Tensor
from alewm.training.checkpoint import (
    Description,
    checkpoints_in,
    load_world_model,
    read_description,
    save_weights,
    weights_sha256,
)
from alewm.training.data_sets import DATA_SETS, data_sets_of
from alewm.training.distill import write_dynamics
from alewm.training.run import latest_checkpoint

WeightType = Literal["float32", "bfloat16"]
"""How matrices are stored; vectors (norms, biases, running moments) always stay float32."""

_COPIED = ("splits*.json", "pairs*.safetensors", "metrics.jsonl", "episodes.jsonl")


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
    distilled_result: dict[str, Any]
    """The result.json of the same evaluation with distilled dynamics; empty where there is none."""

    @classmethod
    def of(cls, run: Path, weights: WeightType = "float32") -> "SharedRun":
        """What the run folder `run` has to share, with matrices stored as `weights`."""
        if weights not in ("float32", "bfloat16"):
            raise InputError(f"Weights are stored as float32 or bfloat16, got {weights!r}.")
        model, description = load_world_model(latest_checkpoint(run))
        extras = portable({**description.extras, SHARED_AS: weights})
        provenance, result = (portable(read_if_there(run / name)) for name in ("provenance.json", "result.json"))
        apart = {
            name: portable(read_if_there(run / EVALUATIONS / name / "result.json"))
            for name in extras.get(DATA_SETS, {})
        }
        small = EVALUATIONS, EvaluationSettings(dynamics=DISTILLED).name(), "result.json"
        distilled = portable(read_if_there(run.joinpath(*small)))
        described = replace(description, source_state={}, extras=extras)
        return cls(model, described, result, apart, provenance, distilled)

    def card(self, name: str, folder: Path) -> str:
        """The model card of the model in `folder`, which may have brought its held-out pairs along."""
        learned = data_sets_of(self.description).values()
        brings_pairs = all((folder / pairs_name(each)).is_file() for each in learned)
        about = (self.description, self.model, self.result, self.provenance, self.results_apart)
        return model_card(name, *about, brings_pairs=brings_pairs, distilled_result=self.distilled_result)


def save_pretrained(run: Path, out: Path, weights: WeightType = "float32") -> Path:
    """The new folder `out` with the newest checkpoint of `run`, ready to be shared."""
    check_new_folder(out)
    shared = SharedRun.of(run, weights)
    with new_folder(out) as partial:
        fill_pretrained(run, shared, partial, weights, name=out.resolve().name)
    return out


def fill_pretrained(run: Path, shared: SharedRun, out: Path, weights: WeightType, *, name: str) -> None:
    """All that `run` shares, written to the empty folder `out`; `name` is the title of its card."""
    save_weights(out / "checkpoints", shared.description, _stored(shared.model.state_dict(), weights))
    for path in (path for pattern in _COPIED for path in sorted(run.glob(pattern))):
        shutil.copyfile(path, out / path.name)
    _save_missing_pairs(run, out)
    _save_distilled(run, out)
    write_json(out / "result.json", shared.result)
    write_json(out / "provenance.json", shared.provenance)
    write_text(out / "README.md", shared.card(name, out))
    write_json(out / "config.json", read_json(run / "config.json"))  # last: from now on it is a run folder


def _save_missing_pairs(run: Path, out: Path) -> None:
    """The pairs, where the data file is still where it was and an environment can be put into its states."""
    for learned in data_sets_of(read_description(latest_checkpoint(run))).values():
        path, fingerprint = learned.data.get("path"), learned.data.get("fingerprint")
        place = out / pairs_name(learned)
        if path is not None and fingerprint is not None and Path(path).is_file() and not place.is_file():
            held_out: tuple[Split, ...] = ("validation", "test")
            with suppress(NoEnvironmentError):
                pairs = {str(split): pairs_in_data(run, Path(path), learned, split) for split in held_out}
                save_pairs(place, pairs, fingerprint)


def _save_distilled(run: Path, out: Path) -> None:
    """The distilled dynamics of the run's newest weights, bound to the weights as they are stored in `out`.

    Rounding to bfloat16 moves the latents a little, so the hash changes; `share_run` measures what that costs.
    """
    before = weights_sha256(latest_checkpoint(run))
    after = weights_sha256(checkpoints_in(out / "checkpoints")[-1])
    for capacity, folder in distilled_capacities(run / DISTILLED).items():
        network = read_dynamics(folder, before)
        description = portable({**read_dynamics_description(folder), "weights_sha256": after})
        write_dynamics(out / DISTILLED / f"k{capacity}", network, description)


def _stored(state: dict[str, Tensor], weights: WeightType) -> dict[str, Tensor]:
    if weights == "float32":
        return state
    return {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() and tensor.ndim > 1 else tensor
        for name, tensor in state.items()
    }
