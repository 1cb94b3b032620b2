"""Copies of human demonstrations with noise, as the published Push-T data are made.

The published training file is 185 of the 206 public demonstrations, each replayed 101 times. Its episodes start where
the demonstration did, have its length, and execute its actions with Gaussian noise of unpublished strength. The actions
are relative to wherever the pusher has come to, so nothing steers it back: in the published file it strays up to 212
pixels out of the arena, which noise on absolute targets cannot do.

`noise_levels` is our choice of the strengths. Its one parameter was set so that the standard deviation of all actions
is that of the published file (the page of Push-T compares the rest). `training_demonstrations` says which 185.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alewm.envs.push_t import physics
from alewm.envs.push_t.behaviour import record_episode, with_small_frames
from alewm.envs.push_t.demonstration_file import DemonstrationFile, read_demonstrations
from alewm.envs.push_t.expert import stream
from alewm.envs.push_t.physics import ACTION_PIXELS, PushTWorld
from alewm.errors import InputError
from alewm.shapes import Float

COPIES = 101
"""Episodes per demonstration, as in the published file: one exact, the others with noise."""

NOISE = 0.038
"""Mean standard deviation of the noise on each component of an action."""

_TRAINING_SHARE = 0.9
_SPLIT_SEED = 42
_MOST_ERROR = 1.0


@dataclass(frozen=True)
class HumanDemonstration:
    """What a person did, in the terms of the environment."""

    number: int
    """Its place in the public file; the family of its copies."""
    start: Float[np.ndarray, "7"]
    """The state it began in, at rest."""
    actions: Float[np.ndarray, "steps 2"]
    """float32: each target relative to the pusher, over 100 pixels."""
    error: float
    """Pixels between where the block ended and where it ends when the actions are replayed."""


def relative_demonstrations(file: DemonstrationFile, numbers: Sequence[int]) -> list[HumanDemonstration]:
    """The demonstrations `numbers` of `file`, replayed in our physics to make their targets relative.

    A file whose blocks do not end where they ended is none of Push-T demonstrations, and is refused.
    """
    made = [_relative(file, number) for number in numbers]
    error = float(np.median([demonstration.error for demonstration in made]))
    if error > _MOST_ERROR:
        raise InputError(
            f"{file.path} does not hold demonstrations of this Push-T: replaying its actions leaves the block "
            f"{error:.1f} pixels (median) from where it ended, where at most {_MOST_ERROR:g} was expected. Its states "
            f"and targets must be in pixels of a {physics.ARENA_SIZE}-pixel arena, ten per second."
        )
    return made


def _relative(file: DemonstrationFile, number: int) -> HumanDemonstration:
    rows = file.rows_of(number)
    states, targets = file.states[rows].astype(np.float64), file.targets[rows].astype(np.float64)
    start = np.array([*states[0], 0.0, 0.0])
    world, actions = PushTWorld(start), []
    for target in targets[:-1]:  # nothing follows the last one
        actions.append(((target - world.state()[:2]) / ACTION_PIXELS).astype(np.float32))
        world.step(*actions[-1].astype(np.float64))
    error = math.dist(world.state()[2:4], states[-1, 2:4])
    return HumanDemonstration(number, start, np.array(actions), error)


def training_demonstrations(num_demonstrations: int) -> list[int]:
    """Which demonstrations the published training file was made of, increasing: nine tenths, drawn with seed 42.

    Of 206 these are 185. That they are the published ones follows from three figures of the published files, which
    they match and hardly any other choice would: the 21 left out have 2,514 rows, every fifth row of each of the 185
    makes 4,698, and the mean of their relative actions is (-0.0078, 0.0068).
    """
    generator = torch.Generator().manual_seed(_SPLIT_SEED)
    order = torch.randperm(num_demonstrations, generator=generator).tolist()
    return sorted(order[: int(_TRAINING_SHARE * num_demonstrations)])


def noise_levels(copies: int, noise: float) -> Float[np.ndarray, " copies"]:
    """The standard deviation of the noise in each copy: 0, then rising quantiles of an exponential distribution.

    Its mean is `noise`. Many weak levels and a few strong ones are what the published file's figures ask for: a single
    level with the same standard deviation of actions keeps the pusher 90 to 170 pixels nearer to the arena.
    """
    middles = (np.arange(copies - 1) + 0.5) / max(1, copies - 1)
    return np.concatenate(([0.0], -noise * np.log1p(-middles)))


@dataclass(frozen=True)
class DemonstrationCopies:
    """An episode source: episode i is copy i % `copies` of demonstration i // `copies`.

    An episode's bytes are a function of the seed, its demonstration's number, its copy, `copies` and `noise`.
    """

    demonstrations: tuple[HumanDemonstration, ...]
    copies: int
    noise: float

    @property
    def num_episodes(self) -> int:
        return len(self.demonstrations) * self.copies

    def __call__(
        self,
        seed: int,
        episode_indices: Iterable[int],
        *,
        image_size: int = physics.IMAGE_SIZE,
        max_steps: int | None = None,
        draw_every: int = 1,
        device: torch.device | str = "cpu",
    ) -> Iterator[dict[str, np.ndarray]]:
        """The episodes, with frames unless `draw_every` is 0; cut after `max_steps` if that is given."""
        episodes = (self._episode(seed, index, max_steps, draw_every) for index in episode_indices)
        return with_small_frames(episodes, image_size, device) if draw_every else episodes

    def _episode(self, seed: int, index: int, max_steps: int | None, draw_every: int) -> dict[str, np.ndarray]:
        which, copy = divmod(index, self.copies)
        demonstration = self.demonstrations[which]
        generator = stream(seed, 2, demonstration.number, copy)
        noise_std = float(noise_levels(self.copies, self.noise)[copy])

        def act(step: int, state: np.ndarray) -> np.ndarray:
            return np.asarray(demonstration.actions[step] + noise_std * generator.standard_normal(2))

        num_steps = min(len(demonstration.actions), max_steps or len(demonstration.actions))
        labels: dict[str, np.ndarray] = {
            "family": np.full(num_steps + 1, demonstration.number, np.int64),
            "noise_std": np.full(num_steps + 1, noise_std, np.float32),
        }
        return record_episode(demonstration.start, act, num_steps, labels, draw_every)


def copies_of_file(
    path: Path, *, copies: int = COPIES, noise: float = NOISE, held_out: bool = False
) -> tuple[DemonstrationCopies, dict[str, Any]]:
    """The episode source of the file at `path`, and what a data file made from it says of itself.

    Of the demonstrations that the published training file was made of, or, `held_out`, of the others.
    """
    if copies < 1:
        raise InputError(f"--copies is 1 or more (the first copy is exact), got {copies}.")
    if not (math.isfinite(noise) and noise >= 0):
        raise InputError(f"--noise is a standard deviation in units of actions, 0 or more, got {noise}.")
    file = read_demonstrations(path)
    training = training_demonstrations(len(file.ends))
    numbers = sorted(set(range(len(file.ends))) - set(training)) if held_out else training
    if not numbers:
        raise InputError(f"{path} has {len(file.ends)} demonstrations; 2 or more are needed to hold one out.")
    source = DemonstrationCopies(tuple(relative_demonstrations(file, numbers)), copies, noise)
    facts: dict[str, Any] = {"demonstrations": file.fingerprint, "copies": copies, "noise": noise}
    return source, facts | ({"held_out": True} if held_out else {})
