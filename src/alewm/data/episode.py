"""One episode of a file, in memory: its columns by name, printed and shown in a notebook."""

import base64
import io
from dataclasses import dataclass
from html import escape

import numpy as np
from PIL import Image

from alewm.data import schema
from alewm.errors import unknown_name

FILM_HEIGHT = 160
"""About how many pixels high a notebook shows frames."""
FRAME_MILLISECONDS = 80


@dataclass(frozen=True, repr=False)
class Episode:
    """One recorded episode: `store[0].pixels`, `store[0].action`, `store[0]["state"]`."""

    number: int
    """Its place in the file."""
    columns: dict[str, np.ndarray]
    """All recorded columns by name; the frames are those that were drawn."""
    draw_every: int = 1
    """Steps between two frames."""

    @property
    def pixels(self) -> np.ndarray:
        """Frames, uint8 [frames, Y, X, 3]."""
        return self.columns[schema.PIXELS]

    @property
    def action(self) -> np.ndarray:
        """Actions, float32 [steps, action]; the last may be NaN, since nothing follows it."""
        return self.columns[schema.ACTION]

    def __getitem__(self, name: str) -> np.ndarray:
        """The column called `name`."""
        if name not in self.columns:
            raise unknown_name("column of the episode", name, self.columns)
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.action)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {list(values.shape)}" for name, values in self.columns.items())
        return f"Episode({self.number}, {len(self)} steps: {shown})"

    def _repr_html_(self) -> str:
        """The frames as a film, which is what a notebook shows."""
        film = base64.b64encode(_gif(self.pixels)).decode()
        return f'<img src="data:image/gif;base64,{film}" alt="frames"><p><code>{escape(repr(self))}</code></p>'


def _gif(frames: np.ndarray) -> bytes:
    scale = max(1, round(FILM_HEIGHT / frames.shape[1]))
    size = frames.shape[2] * scale, frames.shape[1] * scale
    pictures = [Image.fromarray(frame).resize(size, Image.Resampling.NEAREST) for frame in frames]
    buffer = io.BytesIO()
    pictures[0].save(buffer, "GIF", save_all=True, append_images=pictures[1:], duration=FRAME_MILLISECONDS, loop=0)
    return buffer.getvalue()
