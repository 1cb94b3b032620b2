"""A trained model beside its data, and what was measured on it, kept in its run folder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alewm.data.normalize import ActionStatistics
from alewm.data.splits import Splits, load_or_draw_pairs
from alewm.data.store import EpisodeStore
from alewm.data.windows import WindowShape
from alewm.envs.task import Task
from alewm.evaluation.closed_loop import GoalPairs
from alewm.evaluation.held_out import open_own_data, task_of
from alewm.files import read_if_there, write_json
from alewm.model.world_model import WorldModel
from alewm.resize import area_downsample
from alewm.runs.provenance import provenance
from alewm.shapes import Float, Int, Tensor, UInt8
from alewm.training.checkpoint import data_set_of, latest_checkpoint, load_world_model


def measurement_path(run: Path, name: str) -> Path:
    """The file of the measurement called `name`."""
    return run / "measurements" / f"{name}.json"


def read_measurement(run: Path, name: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was measured with these options, or None if nothing was."""
    found = read_if_there(measurement_path(run, name))
    return found["measured"] if found.get("options") == _plain(options) else None


def write_measurement(
    run: Path, name: str, options: Mapping[str, Any], measured: dict[str, Any], command: str | None = None
) -> Path:
    """Keeps what was found, in place of what other options found before; the file.

    `command` is the command that made it, if not the one that was typed.
    """
    path = measurement_path(run, name)
    write_json(path, {"options": _plain(options), "measured": measured, "made_with": provenance(command)})
    return path


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


FRAMES_AT_ONCE = 256
SAMPLE_SEED = 42
"""Of the windows and rows that measurements look at; the same for every model."""


@dataclass(frozen=True)
class EncodedWindows:
    """Windows as the predictor meets them."""

    starts: Int[np.ndarray, " B"]
    """File row of each window's first frame."""
    episodes: Int[np.ndarray, " B"]
    """The episode each is in."""
    features: Float[Tensor, "B F W"]
    latents: Float[Tensor, "B F D"]
    actions: Float[Tensor, "B G A"]
    """Normalised action blocks between the frames."""


@dataclass(frozen=True)
class Trained:
    """A run's model in evaluation mode, its data and its splits."""

    model: WorldModel
    task: Task
    store: EpisodeStore
    splits: Splits
    statistics: ActionStatistics
    device: torch.device

    @classmethod
    @contextmanager
    def open(cls, folder: Path, data: Path, device: torch.device) -> Iterator["Trained"]:
        """The newest checkpoint of the run in `folder`, with the file it learned from open at `data`."""
        model, description = load_world_model(latest_checkpoint(folder), device)
        learned = data_set_of(description)
        task = task_of(learned)
        with open_own_data(folder, learned, data) as (store, splits):
            yield cls(model, task, store, splits, learned.statistics, device)

    @torch.no_grad()
    def encode_rows(self, rows: Int[np.ndarray, " n"]) -> tuple[Float[Tensor, "n W"], Float[Tensor, "n D"]]:
        """Features and latents of stored frames, on the CPU."""
        features, latents = [], []
        for part in np.array_split(rows, -(-len(rows) // FRAMES_AT_ONCE)):
            pixels = self._readable(torch.as_tensor(self.store.frames(part)))
            encoding = self.model.encode(pixels[:, None].to(self.device))
            features.append(encoding.features[:, 0].float().cpu())
            latents.append(encoding.latents[:, 0].float().cpu())
        return torch.cat(features), torch.cat(latents)

    def _readable(self, frames: UInt8[Tensor, "n Y X 3"]) -> UInt8[Tensor, "n y x 3"]:
        """`frames`, averaged down as in training unless the encoder does it, as it does by a whole factor."""
        size = self.model.config.encoder.image_size
        height, width = frames.shape[1:3]
        return frames if height == width and height % size == 0 else area_downsample(frames, size)

    def windows(self, part: str, most: int) -> EncodedWindows:
        """At most `most` windows of the episodes of `part`, drawn without repetition."""
        episodes, shape = self.splits.part(part), WindowShape()
        index = self.store.windows(episodes, shape)
        generator = np.random.default_rng([SAMPLE_SEED, len(episodes)])
        starts = index.starts(np.sort(generator.permutation(len(index))[:most]))
        rows = shape.frame_rows(starts)
        features, latents = self.encode_rows(rows.reshape(-1))
        actions = shape.action_blocks(self.statistics.normalize(self.store.actions), starts)
        return EncodedWindows(
            starts,
            np.searchsorted(self.store.offsets, starts, side="right") - 1,
            features.view(*rows.shape, -1),
            latents.view(*rows.shape, -1),
            torch.as_tensor(actions).float(),
        )

    def rows(self, part: str, most: int) -> Int[np.ndarray, " n"]:
        """At most `most` rows that have frames, of the episodes of `part`, drawn without repetition, increasing."""
        every = self.store.drawn_rows(self.splits.part(part))
        drawn: np.ndarray = np.sort(np.random.default_rng([SAMPLE_SEED, len(every)]).permutation(every)[:most])
        return drawn

    def test_pairs(self) -> GoalPairs:
        """The starts and goals that evaluation uses."""
        stored = load_or_draw_pairs(self.store, self.splits).test
        return GoalPairs.gather(stored, self.store.column, self.task.state_columns)
