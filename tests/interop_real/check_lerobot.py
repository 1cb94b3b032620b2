"""Data sets that LeRobot wrote, in both of its formats, with images and with videos, are converted frame for frame."""

import numpy as np
import pytest
from lerobot_frames import LENGTHS, frames

from alewm.data.conversion.convert import convert, open_source
from alewm.data.store import EpisodeStore


@pytest.mark.parametrize("kind", ["image", "video"])
@pytest.mark.parametrize(("version", "format"), [("0.3.3", "v2.1"), ("0.4.4", "v3.0")])
def test_a_data_set_is_converted_frame_for_frame(version, format, kind, with_overlay, tmp_path, found):
    """Videos are compressed, and still a frame must be nearer to itself than to its neighbours."""
    written = with_overlay(f"lerobot-{version}", "lerobot_set.py", tmp_path / "set", kind)
    assert written["version"] == format
    convert(open_source(tmp_path / "set"), tmp_path / "data.h5", jobs=1)
    mean = 0.0
    with EpisodeStore.open(tmp_path / "data.h5") as store:
        assert tuple(store.lengths) == LENGTHS
        for episode in range(len(LENGTHS)):
            pixels, actions = frames(episode)
            assert np.array_equal(store[episode].columns["action"], actions)
            off = np.abs(store[episode].pixels[:, None].astype(int) - pixels[None]).mean((2, 3, 4))
            assert np.array_equal(off.argmin(1), np.arange(len(pixels)))
            mean = max(mean, float(np.diag(off).max()))
    assert mean == 0 if kind == "image" else mean < 4
    video = f"actions equal; frames in order, off by {mean:.2g} of 255 levels in the mean, which is its compression"
    outcome = "frames and actions equal" if kind == "image" else video
    found(f"LeRobot {format} with {kind}s, in `alewm convert`", (f"lerobot {version}",), outcome)
