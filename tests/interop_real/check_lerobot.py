"""Data sets that LeRobot itself wrote, in both of its formats, are converted frame for frame."""

import numpy as np
import pytest

from alewm.data.conversion.convert import convert, open_source
from alewm.data.store import EpisodeStore

LENGTHS = (6, 9, 7)  # as in lerobot_set.py, which needs LeRobot to be imported


@pytest.mark.parametrize(("version", "format"), [("0.3.3", "v2.1"), ("0.4.4", "v3.0")])
def test_a_data_set_is_converted_frame_for_frame(version, format, with_overlay, tmp_path, found):
    written = with_overlay(f"lerobot-{version}", "lerobot_set.py", tmp_path / "set")
    assert written["version"] == format
    convert(open_source(tmp_path / "set"), tmp_path / "data.h5", jobs=1)
    with EpisodeStore.open(tmp_path / "data.h5") as store:
        assert tuple(store.lengths) == LENGTHS
        for episode, length in enumerate(LENGTHS):
            generator = np.random.default_rng(episode)
            pixels = generator.integers(0, 256, (length, 32, 32, 3), dtype=np.uint8)
            assert np.array_equal(store[episode].pixels, pixels)
            assert np.array_equal(
                store[episode].columns["action"], generator.normal(size=(length, 2)).astype(np.float32)
            )
    found(f"LeRobot {format} with images, in `alewm convert`", (f"lerobot {version}",), "frames and actions equal")
