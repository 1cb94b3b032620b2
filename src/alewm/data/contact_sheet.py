"""Frames of a few episodes on one picture: what a file shows, at a glance."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from alewm.data.store import EpisodeStore
from alewm.files import write_bytes

NUM_EPISODES = 6
NUM_FRAMES = 8
_TILE, _GAP = 96, 4
_PAPER = (51, 65, 85)  # a colour that few frames have at their edges


def contact_sheet(store: EpisodeStore, num_episodes: int = NUM_EPISODES, num_frames: int = NUM_FRAMES) -> Image.Image:
    """One row per episode, spread over the file; its frames from the first to the last, spread over the episode."""
    episodes = _spread(store.num_episodes, num_episodes)
    height, width, _ = store.frame_shape
    scale = _TILE / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    drawn = [store.drawn_rows([int(episode)]) for episode in episodes]
    columns = min(num_frames, max(map(len, drawn)))
    sheet = Image.new("RGB", (columns * (size[0] + _GAP) - _GAP, len(episodes) * (size[1] + _GAP) - _GAP), _PAPER)
    for y, rows in enumerate(drawn):
        for x, frame in enumerate(store.frames(rows[_spread(len(rows), columns)])):
            # Small frames are enlarged as they are, so that their pixels can be seen.
            way = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BOX
            sheet.paste(Image.fromarray(frame).resize(size, way), (x * (size[0] + _GAP), y * (size[1] + _GAP)))
    return sheet


def write_contact_sheet(store: EpisodeStore, path: Path) -> Path:
    """`path`, after the sheet was written there as PNG in one step."""
    picture = io.BytesIO()
    contact_sheet(store).save(picture, "png")
    write_bytes(path, picture.getvalue())
    return path


def _spread(count: int, wanted: int) -> np.ndarray:
    """At most `wanted` numbers from 0 to `count` - 1, the first and the last among them, evenly apart."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).round().astype(np.int64))
