"""Episodes as GIFs: the episode on the left, its goal on the right."""

import io
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image

from alewm.errors import InputError
from alewm.evaluation.closed_loop import ClosedLoop, GoalEnvs, GoalPairs
from alewm.evaluation.success import EpisodeRecord
from alewm.files import write_bytes
from alewm.shapes import Tensor, UInt8

GAP = 8
"""Pixels between the episode and its goal, before enlarging."""

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
    envs: GoalEnvs, pairs: GoalPairs, outcome: ClosedLoop, indices: Sequence[int]
) -> list[tuple[UInt8[Tensor, "frames Y X 3"], UInt8[Tensor, "Y X 3"]]]:
    """Frames and goal of the episodes at `indices`, replayed from their executed actions.

    `envs` is a batch of as many environments as there are indices. Drawing every step of every evaluated episode
    would cost more than planning them; replaying a few costs nothing.
    """
    envs.reset_to(pairs.take(indices).start_rows, pairs.take(indices).goal_rows)
    goals, frames = envs.render_goal().cpu(), [envs.render().cpu()]
    if len(goals) != len(indices):
        raise InputError(f"Filming {len(indices)} episodes needs as many environments, got {len(goals)}.")
    actions, steps = outcome.actions[list(indices)], outcome.steps[list(indices)].tolist()
    for step in range(max(steps)):
        envs.step(actions[:, step])
        frames.append(envs.render().cpu())
    films = torch.stack(frames, 1)
    return [(films[b, : steps[b] + 1], goals[b]) for b in range(len(indices))]


def write_gif(
    path: Path, frames: UInt8[Tensor, "frames Y X 3"], goal: UInt8[Tensor, "Y X 3"], *, height: int = 160
) -> None:
    """Write the episode beside its goal, about `height` pixels high."""
    write_bytes(path, as_gif([[frame, goal] for frame in frames], scale=max(1, round(height / goal.shape[0]))))


def as_gif(pictures: Sequence[Sequence[UInt8[Tensor, "Y _ 3"]]], scale: int = 1) -> bytes:
    """Pictures, each of parts side by side, as an animation that loops with a pause on the last one."""
    gap = torch.full((pictures[0][0].shape[0], GAP, 3), 128, dtype=torch.uint8)
    drawn = []
    for first, *others in pictures:
        joined = torch.cat([first, *(part for other in others for part in (gap, other))], 1)
        image = Image.fromarray(joined.contiguous().numpy())
        drawn.append(image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST))
    duration = [1000 // FRAMES_PER_SECOND] * (len(drawn) - 1) + [PAUSE_MILLISECONDS]
    buffer = io.BytesIO()
    drawn[0].save(buffer, format="GIF", save_all=True, append_images=drawn[1:], duration=duration, loop=0)
    return buffer.getvalue()
