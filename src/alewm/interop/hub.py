"""Runs on the Hugging Face Hub, by its own mixin: `save_pretrained`, `from_pretrained`, `push_to_hub`.

Needs the extra `hub`; everything else in the package works without it. Local folders need no network.
"""

from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from alewm.errors import InputError
from alewm.evaluation.distill_run import with_dynamics
from alewm.evaluation.settings import OWN_DYNAMICS
from alewm.files import check_new_folder
from alewm.interop.pretrained import SharedRun, WeightType, save_pretrained
from alewm.model.world_model import WorldModel
from alewm.planning.planner import Planner, PlanningConfig
from alewm.training.checkpoint import Description, data_set_of, latest_checkpoint, load_world_model

try:
    from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
except ModuleNotFoundError as error:
    raise InputError(
        f"The Hub needs the package {error.name!r}, which is not installed. Install the extra: pip install 'alewm[hub]'"
    ) from error


class PretrainedRun(ModelHubMixin):
    """A trained model with all that planning needs, from a run folder, a shared folder or the Hub."""

    def __init__(self, run: Path, weights: WeightType = "float32") -> None:
        self.run, self.weights = Path(run), weights

    @cached_property
    def _loaded(self) -> tuple[WorldModel, Description]:
        return load_world_model(latest_checkpoint(self.run))

    @property
    def model(self) -> WorldModel:
        """The model, on the CPU and in evaluation mode."""
        return self._loaded[0]

    @property
    def description(self) -> Description:
        """Its configuration, its task, its action statistics and the fingerprint of its data."""
        return self._loaded[1]

    def planner(
        self,
        config: PlanningConfig | None = None,
        device: torch.device | None = None,
        data_set: str = "",
        dynamics: str = OWN_DYNAMICS,
    ) -> Planner:
        """A planner from two images to actions in the units of the environment of `data_set`, if there are several.

        `dynamics` are those of `alewm evaluate`: `own`, `distilled` or a folder of `alewm distill`.
        """
        statistics = data_set_of(self.description, data_set).statistics
        config = (config or PlanningConfig()).at_frame_skip(self.description.config.frame_skip)
        model = self.model if device is None else self.model.to(device)
        if dynamics != OWN_DYNAMICS:
            return Planner(with_dynamics(model, self.run, dynamics), statistics.mean, statistics.std, config)
        return Planner(model, statistics.mean, statistics.std, config)

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """The mixin's `save_pretrained`, into a new folder: what is in a folder already is never touched."""
        latest_checkpoint(self.run)  # a run without one is refused before anything is made
        check_new_folder(Path(save_directory))
        return super().save_pretrained(save_directory, **options)

    def generate_model_card(self, *_: Any, **__: Any) -> ModelCard:
        """The card of the run."""
        return ModelCard(SharedRun.of(self.run, self.weights).card(self.run.resolve().name, self.run))

    def _save_pretrained(self, save_directory: Path) -> None:
        save_pretrained(self.run, save_directory, self.weights)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> "PretrainedRun":
        if Path(model_id).is_dir():
            return cls(Path(model_id))
        wanted = ("revision", "cache_dir", "force_download", "local_files_only", "token")
        return cls(Path(snapshot_download(model_id, **{name: options[name] for name in wanted if name in options})))
