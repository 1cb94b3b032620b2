"""What the recorders of all environments share: an episode's random stream, and the columns of a finished episode."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from alewm.envs.drawing import EachByItself, Painter
from alewm.envs.simulated import Simulator
from alewm.errors import InputError
from alewm.resize import area_downsample
from alewm.shapes import UInt8


def episode_stream(seed: int, episode_index: int) -> np.random.Generator:
    """The random stream of one episode."""
    if seed < 0 or episode_index < 0:
        raise InputError(f"Seeds and episode indices are not negative, got {seed} and {episode_index}.")
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(episode_index,))))


def full_length_episode(
    rows: Sequence[Mapping[str, np.ndarray]], actions: Sequence[np.ndarray], rewards: Sequence[float]
) -> dict[str, np.ndarray]:
    """The columns of an episode that nothing but the limit of its length ended.

    `rows` are what was seen, the reset first, and `actions` and `rewards` what led from each to the next. Row t holds
    the action taken there, so that of the last row is NaN; the reset has no reward and holds NaN.
    """
    last = np.arange(len(rows)) == len(rows) - 1
    none = np.full((1, *actions[0].shape), np.nan, np.float32)
    return {
        "action": np.concatenate((np.stack(actions).astype(np.float32), none)),
        **{name: np.stack([row[name] for row in rows]) for name in rows[0]},
        "reward": np.array([np.nan, *rewards]),
        "terminated": np.zeros(len(rows), bool),
        "truncated": last,
        "step_idx": np.arange(len(rows), dtype=np.int64),
    }


class Film:
    """Frames of one episode, shot row by row; drawn of every `draw_every`-th row, the first before all.

    `painter` draws them, by default each world by itself.
    """

    def __init__(
        self,
        image_size: int,
        device: torch.device | str = "cpu",
        draw_every: int = 1,
        painter: Painter | None = None,
    ) -> None:
        self.image_size, self.device, self.draw_every = image_size, device, draw_every
        self.painter = painter or EachByItself()
        self._num_shot = 0
        self._looks: list[np.ndarray] = []

    def shoot(self, world: Simulator) -> None:
        """Come to the next row, and add the present picture of `world` if it is one to be drawn."""
        if self._num_shot % self.draw_every == 0:
            self._looks.append(self.painter.look(world))
        self._num_shot += 1

    def pixels(self) -> UInt8[np.ndarray, "T Y X 3"]:
        """All frames, area-averaged to the film's size on its device."""
        frames = self.painter.paint(self._looks)
        if self.image_size != frames.shape[1]:
            frames = area_downsample(frames if frames.is_cuda else frames.to(self.device), self.image_size)
        return frames.cpu().numpy()
