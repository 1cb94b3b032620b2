"""Episodes as GIFs: the episode on the left, its goal on the right."""

import io
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image

from alewm.errors import InputError
from alewm.evaluation.closed_loop import GoalEnvs, GoalPairs
from alewm.evaluation.held_out import drawing_of, find_pairs, task_of
from alewm.evaluation.settings import EVALUATIONS, EvaluationSettings
from alewm.evaluation.success import EpisodeRecord, read_records
from alewm.files import read_if_there, write_bytes
from alewm.runs.folder import load_tensors
from alewm.shapes import Float, Int, Tensor, UInt8
from alewm.training.checkpoint import data_set_of, latest_checkpoint, read_description

Film = tuple[UInt8[Tensor, "frames Y X 3"], UInt8[Tensor, "Y X 3"]]
"""Frames of an episode, and its goal."""

ACTIONS = "actions.safetensors"
"""The file of executed actions [B, budget, action_dim], from which every episode can be replayed."""

GAP = 16
"""Pixels between the episode and its goal."""

FILM_HEIGHT = 160
"""Pixels, about: frames are enlarged by a whole factor."""

FRAMES_PER_SECOND = 12
PAUSE_MILLISECONDS = 1200
"""How long the last frame is shown."""


def choose_episodes(records: Sequence[EpisodeRecord], count: int) -> list[int]:
    """Indices of the first successes and failures among the pairs not solved at the start, half of each if there are.

    The first ones, not the prettiest: pairs come in random order.
    """
    hard = [b for b, record in enumerate(records) if not record.presolved]
    reached = [b for b in hard if records[b].success]
    missed = [b for b in hard if not records[b].success]
    num_missed = min(len(missed), max(count // 2, count - len(reached)))
    return reached[: count - num_missed] + missed[:num_missed]


def film(
    envs: GoalEnvs, pairs: GoalPairs, actions: Float[Tensor, "B budget action"], steps: Int[Tensor, "B"]
) -> list[Film]:
    """Frames and goals of `pairs`, replayed in as many environments from the actions that were executed.

    Drawing every step of every evaluated episode would cost more than planning them; replaying a few costs nothing.
    """
    envs.reset_to(pairs.start_rows, pairs.goal_rows)
    goals, frames = envs.render_goal().cpu(), [envs.render().cpu()]
    if len(goals) != len(pairs):
        raise InputError(f"Filming {len(pairs)} episodes needs as many environments, got {len(goals)}.")
    for step in range(int(steps.max())):
        envs.step(actions[:, step])
        frames.append(envs.render().cpu())
    films = torch.stack(frames, 1)
    return [(films[b, : int(steps[b]) + 1], goals[b]) for b in range(len(pairs))]


def replayed(
    folder: Path, indices: Sequence[int], image_size: int | None = None, *, data_path: Path | None = None
) -> list[Film]:
    """Frames and goals of evaluated episodes, drawn again from the actions that an evaluation kept in `folder`.

    `folder` is a run folder or one below its `evaluations/`; `indices` are places in its episodes.jsonl. The pairs must
    be there (with a shared model) or the data file, at `data_path` if it has moved, and the task's environment.
    """
    evaluated = read_if_there(folder / "result.json").get("evaluated")
    if evaluated is None:
        raise InputError(f"{folder} holds no evaluation whose episodes could be drawn.")
    settings = EvaluationSettings.of(evaluated)
    run = folder.parent.parent if folder.parent.name == EVALUATIONS else folder
    learned = data_set_of(read_description(latest_checkpoint(run)), settings.data_set)
    pairs, records = find_pairs(run, learned, settings, data_path), read_records(folder / "episodes.jsonl")
    actions = load_tensors(folder / ACTIONS, "evaluate again.")[0]["actions"]
    known = {name: b for b, name in enumerate(pairs.pair_names)}
    if not all(records[i].pair_name in known for i in indices):
        raise InputError(f"{folder} has episodes that are not among the pairs of {run}.")
    task = task_of(learned)
    envs = task.make_vector_env(len(indices), image_size=image_size, drawing=drawing_of(task, learned, settings))
    steps = torch.tensor([records[i].steps for i in indices])
    return film(envs, pairs.take([known[records[i].pair_name] for i in indices]), actions[list(indices)], steps)


def write_gif(
    path: Path, frames: UInt8[Tensor, "frames Y X 3"], goal: UInt8[Tensor, "Y X 3"], *, height: int = FILM_HEIGHT
) -> None:
    """Write the episode beside its goal, about `height` pixels high."""
    write_bytes(path, as_gif([[frame, goal] for frame in frames], height))


def as_gif(pictures: Sequence[Sequence[UInt8[Tensor, "Y _ 3"]]], height: int = 0) -> bytes:
    """Pictures, each of parts side by side, as an animation that loops with a pause on the last one."""
    rows = [side_by_side(parts, height) for parts in pictures]
    width, height = rows[0].size
    sheet = Image.new("RGB", (width, height * len(rows)))
    for i, row in enumerate(rows):
        sheet.paste(row, (0, i * height))
    sheet = sheet.quantize(256, kmeans=2)  # one palette, so that of a frame only what moved is stored
    drawn = [sheet.crop((0, i * height, width, (i + 1) * height)) for i in range(len(rows))]
    duration = [1000 // FRAMES_PER_SECOND] * (len(drawn) - 1) + [PAUSE_MILLISECONDS]
    buffer = io.BytesIO()
    drawn[0].save(buffer, format="GIF", save_all=True, append_images=drawn[1:], duration=duration, loop=0)
    return buffer.getvalue()


def side_by_side(parts: Sequence[UInt8[Tensor, "Y _ 3"]], height: int = 0) -> Image.Image:
    """Pictures of one height in a row, each enlarged by a whole factor to about `height`, with white between them.

    What is between them has the width of `GAP` whatever the factor is, so that it is not taken for a wall of the task.
    """
    scale = max(1, round(height / parts[0].shape[0]))
    images = [Image.fromarray(part.contiguous().numpy()) for part in parts]
    images = [image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST) for image in images]
    row = Image.new("RGB", (sum(image.width + GAP for image in images) - GAP, images[0].height), "white")
    x = 0
    for image in images:
        row.paste(image, (x, 0))
        x += image.width + GAP
    return row
