"""Episodes as GIFs: the episode on the left, its goal on the right."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image

from alewm.errors import InputError
from alewm.evaluation.closed_loop import ClosedLoop, GoalEnvs, GoalPairs
from alewm.evaluation.records import EpisodeRecord
from alewm.shapes import Tensor, UInt8

GAP = 8
"""Pixels between the episode and its goal, before enlarging."""


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
    path: Path,
    frames: UInt8[Tensor, "frames Y X 3"],
    goal: UInt8[Tensor, "Y X 3"],
    *,
    frames_per_second: int = 12,
    height: int = 160,
) -> None:
    """Write the episode beside its goal, looping, with a pause on the last frame."""
    scale = max(1, round(height / goal.shape[0]))
    gap = torch.full((goal.shape[0], GAP, 3), 128, dtype=torch.uint8)
    pictures = [Image.fromarray(torch.cat([frame, gap, goal], 1).contiguous().numpy()) for frame in frames]
    pictures = [p.resize((p.width * scale, p.height * scale), Image.Resampling.NEAREST) for p in pictures]
    duration = [1000 // frames_per_second] * len(pictures)
    duration[-1] = 1200
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures[0].save(path, format="GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0)
