"""What a run is evaluated on: its task, its data and its pairs; and its model beside them, for measurements.

Pairs come with a shared model as a small file, or from beside the data file. The file holds the few numbers that an
environment needs of a start and a goal, for validation and test pairs, with the fingerprint of the data they were drawn
from. The environment draws the images itself.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alewm.data.action_statistics import ActionStatistics
from alewm.data.loader import frames_ahead
from alewm.data.splits import (
    MIN_HELD_OUT_LENGTH,
    NUM_TEST,
    EvaluationPair,
    Splits,
    draw_pairs,
    draw_several_pairs,
    find_families,
    load_or_draw_pairs,
    load_or_make_splits,
)
from alewm.data.store import EpisodeStore
from alewm.data.windows import WindowShape
from alewm.envs.registry import get_task, task_names
from alewm.envs.simulated import Drawing
from alewm.envs.task import Task
from alewm.errors import InputError, unknown_name
from alewm.evaluation.closed_loop import GoalPairs
from alewm.evaluation.settings import EvaluationSettings, Split
from alewm.files import read_if_there, reading, write_json
from alewm.model.world_model import WorldModel
from alewm.planning.noise import stream_seed
from alewm.resize import area_downsample
from alewm.runs.folder import load_tensors, provenance, save_tensors
from alewm.shapes import Float, Int, Tensor, UInt8
from alewm.training.checkpoint import DataSet, Description, data_set_of, latest_checkpoint, load_world_model

_WITHOUT = "Planning from two images and `alewm share` need neither (docs/planning.md)."


class NoEnvironmentError(InputError):
    """The task of a run has no environment here."""


def task_of(learned: DataSet) -> Task:
    """The task of a data set, with its environment; a name that no environment has is refused."""
    if learned.task not in task_names():
        raise NoEnvironmentError(
            f"There is no environment for the task {learned.task!r}; there are {', '.join(task_names())}. Success is "
            f"measured in an environment, on recorded states: enter yours (docs/own-task.md). {_WITHOUT}"
        )
    return get_task(learned.task)


def drawing_of(task: Task, learned: DataSet, settings: EvaluationSettings) -> Drawing | None:
    """Who draws what a model sees in evaluation: whoever drew what it was trained on, unless `settings` say otherwise.

    None where the task has no choice of renderers. An imported model's data say nothing, so MuJoCo draws.
    """
    if not task.has_renderers:
        if settings.drawing != "as-trained":
            raise InputError(f"{task.name} has one way to draw its frames: leave out --drawing.")
        return None
    if settings.drawing == "as-trained":
        return Drawing.of(learned.data)
    return task.resolve_drawing(settings.drawing)


def state_columns_in(store: EpisodeStore, task: Task) -> tuple[str, ...]:
    """The columns from which the task's environment is put into a recorded state; a file without them is refused."""
    missing = [name for name in task.state_columns if name not in store.column_names]
    if missing:
        raise NoEnvironmentError(
            f"{store.path} lacks the columns {', '.join(missing)}, from which the environment of {task.name!r} is put "
            f"into a recorded state. Success is measured there: record them too. {_WITHOUT}"
        )
    return task.state_columns


def only_data_set(run: Path, description: Description) -> DataSet:
    """The data set of a run that learned from one; another run is refused."""
    if len(description.config.data_sets) > 1:
        raise InputError(f"{run} learned from several data sets. This command takes a model of one task.")
    return data_set_of(description)


def own_data_path(run: Path, learned: DataSet, moved_to: Path | None) -> Path:
    """The file `run` learned from; at `moved_to` if that is given."""
    if moved_to is not None:
        return moved_to
    if learned.path is None:
        raise InputError(f"{run} was imported without a data file. Say with --data which episodes to evaluate it on.")
    path = Path(learned.path)
    if not path.exists():
        raise InputError(
            f"{run} was trained on {path}, which is no longer there. Say where it is with --data"
            f"{_how_to_make(learned.data)}."
        )
    return path


@contextmanager
def open_own_data(run: Path, learned: DataSet, path: Path) -> Iterator[tuple[EpisodeStore, Splits]]:
    """The file at `path`, which must be the one `run` learned from, and its splits; any file for an imported model."""
    with EpisodeStore.open(path) as store:
        if learned.fingerprint is None:
            yield store, load_or_make_splits(store)
            return
        if store.fingerprint != learned.fingerprint:
            raise InputError(
                f"{run} was trained on data with fingerprint {learned.fingerprint}, but {path} has "
                f"{store.fingerprint}: what is held out there may have been trained on. Give the run's own data file"
                f"{_how_to_make(learned.data)}."
            )
        yield store, Splits.load(run / learned.splits)


def _how_to_make(data: dict[str, Any]) -> str:
    """How a file that `alewm collect` made is made again, as the end of a sentence; nothing for other files."""
    return f", or make it again: {data['made_with']}" if "made_with" in data else ""


_NUMBERS = ("episodes", "start_steps", "goal_steps")
_FAMILIES = "families"


def pairs_name(learned: DataSet) -> str:
    """The file in the folder of a shared model that has the pairs of this data set."""
    return learned.splits.replace("splits", "pairs").replace(".json", ".safetensors")


def save_pairs(path: Path, pairs: Mapping[str, GoalPairs], fingerprint: str) -> None:
    """Write the pairs of each split."""
    tensors: dict[str, Tensor] = {}
    for split, part in pairs.items():
        tensors |= {f"{split}/{name}": torch.tensor(getattr(part, name)) for name in _NUMBERS}
        if part.families is not None:
            tensors[f"{split}/{_FAMILIES}"] = torch.tensor(part.families)
        for role, rows in (("start", part.start_rows), ("goal", part.goal_rows)):
            tensors |= {f"{split}/{role}/{name}": torch.as_tensor(rows[name]).contiguous() for name in rows}
    save_tensors(path, tensors, {"fingerprint": fingerprint})


def load_pairs(path: Path, split: str, fingerprint: str | None) -> GoalPairs:
    """The pairs of `split`; those of data with another `fingerprint` are refused."""
    tensors, metadata = load_tensors(path, "restore it, or evaluate with --data.")
    found = metadata.get("fingerprint")
    if found != fingerprint:
        raise InputError(
            f"{path} has pairs of data with fingerprint {found}, but the model was trained on {fingerprint}: what is "
            f"held out there may have been trained on. Restore the file that came with the model."
        )
    splits = sorted({name.partition("/")[0] for name in tensors})
    if split not in splits:
        raise unknown_name(f"split of {path}", split, splits)
    own = {name.removeprefix(f"{split}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{split}/")}
    with reading(path):
        numbers = [tuple(own[name].tolist()) for name in _NUMBERS]
    columns = [
        {name.removeprefix(f"{role}/"): tensor for name, tensor in own.items() if name.startswith(f"{role}/")}
        for role in ("start", "goal")
    ]
    families = tuple(own[_FAMILIES].tolist()) if _FAMILIES in own else None
    return GoalPairs(numbers[0], numbers[1], numbers[2], columns[0], columns[1], families=families)


def find_pairs(run: Path, learned: DataSet, settings: EvaluationSettings, data_path: Path | None) -> GoalPairs:
    """The pairs `settings` asks for, of the data `run` learned from; the file is at `data_path` if it has moved."""
    travelling = run / pairs_name(learned)
    is_single = settings.pairs_per_episode == 1
    if data_path is None and settings.split != "train" and is_single and travelling.is_file():
        pairs, where = load_pairs(travelling, settings.split, learned.fingerprint), travelling
    else:
        where = own_data_path(run, learned, data_path)
        pairs = pairs_in_data(
            run, where, learned, settings.split, settings.num_episodes, per_episode=settings.pairs_per_episode
        )
    if settings.num_episodes is not None and settings.num_episodes > len(pairs):
        raise InputError(
            f"--episodes {settings.num_episodes} were asked for, but the {settings.split} split of {where} has "
            f"{len(pairs)} pairs."
        )
    return pairs if settings.num_episodes is None else pairs.take(range(settings.num_episodes))


def pairs_in_data(
    run: Path,
    path: Path,
    learned: DataSet,
    split: Split,
    most_training: int | None = None,
    *,
    per_episode: int = 1,
) -> GoalPairs:
    """The pairs of `split` in the data file `path`, which must be the one `run` learned from.

    Of training episodes there are `most_training`, or as many as of test episodes.
    """
    task = task_of(learned)
    with open_own_data(run, learned, path) as (store, splits):
        names = state_columns_in(store, task)
        num_known = len(store.notes)
        stored = _stored_pairs(store, splits, split, most_training, per_episode)
        for note in store.notes[num_known:]:
            print(note, file=sys.stderr)
        families = find_families(store)
        of_episode = None if families is None else families.of_episode
        pairs = GoalPairs.gather(stored, store.column, names, store.actions, of_episode)
    if per_episode > 1:
        # The episode alone would give all its pairs the same noise.
        pairs = replace(pairs, streams=tuple(stream_seed("pair", *name) for name in pairs.pair_names))
    return pairs


def _stored_pairs(
    store: EpisodeStore, splits: Splits, split: Split, most_training: int | None, per_episode: int = 1
) -> tuple[EvaluationPair, ...]:
    if split != "train":
        return load_or_draw_pairs(store, splits, per_episode=per_episode).part(split)
    # Not stored, since no result is selected or published on them; drawn with the same seed, so everyone gets the same.
    long_enough = [episode for episode in splits.train if store.lengths[episode] >= MIN_HELD_OUT_LENGTH]
    chosen = long_enough[: most_training or NUM_TEST]
    return draw_pairs(store, chosen) if per_episode == 1 else draw_several_pairs(store, chosen, per_episode)


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
    """Write the result of a measurement, replacing one with other options; return the file.

    `command` is the command that made it, if not the one that was typed.
    """
    path = measurement_path(run, name)
    write_json(path, {"options": _plain(options), "measured": measured, "made_with": provenance(command)})
    return path


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


SAMPLE_SEED = 42
"""Of the windows and rows that measurements look at; the same for every model."""


@dataclass(frozen=True)
class EncodedWindows:
    """Windows as the predictor meets them."""

    rows: Int[np.ndarray, "B F"]
    """File rows of their frames."""
    features: Float[Tensor, "B F W"]
    latents: Float[Tensor, "B F D"]
    actions: Float[Tensor, "B G A"]
    """Normalised action blocks between the frames."""


@dataclass(frozen=True)
class Trained:
    """A run's model in evaluation mode, its data and its splits."""

    model: WorldModel
    learned: DataSet
    store: EpisodeStore
    splits: Splits
    shape: WindowShape
    """Of its training windows."""
    device: torch.device

    @classmethod
    @contextmanager
    def open(cls, run: Path, data_path: Path | None, device: torch.device) -> Iterator["Trained"]:
        """The newest checkpoint of `run`, with the file it learned from open; at `data_path` if it has moved."""
        model, description = load_world_model(latest_checkpoint(run), device)
        learned = only_data_set(run, description)
        with open_own_data(run, learned, own_data_path(run, learned, data_path)) as (store, splits):
            yield cls(model, learned, store, splits, description.config.windows, device)

    @property
    def task(self) -> Task:
        """The task, with its environment; refused where there is none."""
        return task_of(self.learned)

    @property
    def statistics(self) -> ActionStatistics:
        """Of the training actions."""
        return self.learned.statistics

    def frames(self, rows: Int[np.ndarray, " n"]) -> UInt8[Tensor, "n Y X 3"]:
        """Stored frames at the size that the encoder reads."""
        size = self.model.image_size
        frames = torch.empty(len(rows), size, size, 3, dtype=torch.uint8)
        for part, pixels in frames_ahead(self.store, rows, frames.device):
            frames[part] = area_downsample(pixels, size)
        return frames

    @torch.no_grad()
    def encode_rows(self, rows: Int[np.ndarray, " n"]) -> tuple[Float[Tensor, "n W"], Float[Tensor, "n D"]]:
        """Features and latents of stored frames, on the CPU."""
        parts = [self.model.encode(pixels[:, None]) for _, pixels in frames_ahead(self.store, rows, self.device)]
        features, latents = (torch.cat(side)[:, 0].float().cpu() for side in zip(*parts, strict=True))
        return features, latents

    def windows_at(self, starts: Int[np.ndarray, " B"], shape: WindowShape) -> EncodedWindows:
        """The windows of this shape whose first frames are at the rows `starts`."""
        rows = shape.frame_rows(starts)
        features, latents = self.encode_rows(rows.reshape(-1))
        actions = shape.action_blocks(self.statistics.normalize(self.store.actions), starts)
        return EncodedWindows(
            rows, features.view(*rows.shape, -1), latents.view(*rows.shape, -1), torch.as_tensor(actions).float()
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
