"""Runs on the Hugging Face Hub, by its own mixin: `save_pretrained`, `from_pretrained`, `push_to_hub`.

Needs the extra `hub`; everything else in the package works without it. Local folders need no network.
"""

from pathlib import Path
from typing import Any

from alewm.errors import InputError, install_line
from alewm.files import check_new_folder
from alewm.interop.pretrained import SharedRun, WeightType, save_pretrained
from alewm.training.checkpoint import latest_checkpoint

try:
    from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
except ModuleNotFoundError as error:
    raise InputError(
        f"The Hub needs the package {error.name!r}, which is not installed. {install_line('hub')}"
    ) from error


class PretrainedRun(ModelHubMixin):
    """A run folder, a shared folder or a repository of the Hub, to be saved or sent; `alewm.load` plans with it."""

    def __init__(self, run: Path, weights: WeightType = "float32") -> None:
        self.run, self.weights = Path(run), weights

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """The mixin's `save_pretrained`, into a new folder: what is in a folder already is never touched."""
        latest_checkpoint(self.run)  # a run without one is refused before anything is made
        check_new_folder(Path(save_directory))
        return super().save_pretrained(save_directory, **options)

    def generate_model_card(self, *_: Any, **__: Any) -> ModelCard:
        return ModelCard(SharedRun.of(self.run, self.weights).card(self.run.resolve().name, self.run))

    def _save_pretrained(self, save_directory: Path) -> None:
        save_pretrained(self.run, save_directory, self.weights)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> "PretrainedRun":
        if Path(model_id).is_dir():
            return cls(Path(model_id))
        wanted = ("revision", "cache_dir", "force_download", "local_files_only", "token")
        return cls(Path(snapshot_download(model_id, **{name: options[name] for name in wanted if name in options})))
