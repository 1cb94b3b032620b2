"""Who draws the frames of a simulated task, and with how fine a shadow map: MuJoCo, or our rasteriser in batches.

A data file says it in two attributes, and the checkpoint of a model repeats them, so that evaluation draws what the
model was trained on. Files and models that say nothing were drawn by MuJoCo with its model's own shadow map.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch

from alewm.data import schema
from alewm.errors import InputError
from alewm.resize import area_downsample
from alewm.shapes import Tensor, UInt8

Renderer = Literal["mujoco", "batched"]
DrawingChoice = Literal["auto", "mujoco", "batched"]
"""What a person can ask for; auto is batched where that works."""


@dataclass(frozen=True)
class Drawing:
    """How frames are drawn."""

    renderer: Renderer = "mujoco"
    shadow_size: int = 0
    """Texels per side of the shadow map; 0 for the model's own."""

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> "Drawing":
        """What the attributes of a file, or a checkpoint's words about its data, say; nonsense is refused."""
        renderer = attributes.get(schema.DRAWING, "mujoco")
        shadow_size = attributes.get(schema.SHADOW_SIZE, 0)
        if renderer not in get_args(Renderer) or not isinstance(shadow_size, int) or shadow_size < 0:
            raise InputError(
                f"Frames are drawn by {' or '.join(get_args(Renderer))} with a shadow map of so many texels per side; "
                f"the data say {renderer!r} and {shadow_size!r}."
            )
        return cls(renderer, shadow_size)

    def attributes(self) -> dict[str, Any]:
        """What a file says of it."""
        size = {schema.SHADOW_SIZE: self.shadow_size} if self.shadow_size else {}
        return {schema.DRAWING: self.renderer, **size}


class Painter(ABC):
    """Draws worlds of one simulator: looks at each when it is in the right state, and draws all of them later."""

    @abstractmethod
    def look(self, world: Any) -> np.ndarray:
        """What is needed of `world` as it is now."""

    @abstractmethod
    def paint(self, looks: Sequence[np.ndarray]) -> UInt8[Tensor, "F Y X 3"]:
        """A frame of native size for each look."""


class EachByItself(Painter):
    """Lets every world draw itself at once."""

    def look(self, world: Any) -> UInt8[np.ndarray, "Y X 3"]:
        """Its frame."""
        frame: np.ndarray = world.draw()
        return frame

    def paint(self, looks: Sequence[np.ndarray]) -> UInt8[Tensor, "F Y X 3"]:
        """The frames together."""
        return torch.from_numpy(np.stack(looks))


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

    def shoot(self, world: Any) -> None:
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
