"""Folders of columns as stable-worldmodel writes them become a data file; tables that cannot be read say what to do."""

import sys

import numpy as np
import pytest
from PIL import Image

from alewm.data.conversion.convert import convert, data_file_of, open_source
from alewm.data.conversion.frames import FrameSize
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from small_recordings import write_video

LENGTHS = (4, 6, 5)


def images(count, seed=0, side=32):
    """Smooth frames, which JPEG and video change little."""
    ramp = np.linspace(0, 200, side)[None, :, None] + np.linspace(0, 50, side)[:, None, None]
    moved = [np.roll(ramp + 5 * step, seed + step, 1).repeat(3, 2) for step in range(count)]
    return np.stack(moved).astype(np.uint8)


@pytest.fixture(params=["images", "videos"])
def folder(request, tmp_path):
    """Three episodes; the last row of each has no action."""
    root = tmp_path / "swm"
    (root / "pixels").mkdir(parents=True)
    offsets = np.cumsum(LENGTHS) - LENGTHS
    np.savez(root / "ep_len.npz", np.array(LENGTHS, np.int32))
    np.savez(root / "ep_offset.npz", offsets.astype(np.int64))
    action = np.random.default_rng(0).normal(size=(sum(LENGTHS), 2)).astype(np.float32)
    action[np.cumsum(LENGTHS) - 1] = np.nan
    np.savez(root / "action.npz", action)
    np.savez(root / "proprio.npz", np.arange(sum(LENGTHS) * 3.0).reshape(-1, 3))
    np.savez(root / "instruction.npz", np.array(["go"] * sum(LENGTHS)))
    for episode, length in enumerate(LENGTHS):
        frames = images(length, episode)
        if request.param == "videos":
            write_video(root / "pixels" / f"ep_{episode}.mp4", frames)
            continue
        for step, frame in enumerate(frames):
            Image.fromarray(frame).save(root / "pixels" / f"ep_{episode}_step_{step}.jpeg", quality=95)
    return root


def test_a_folder_of_columns_becomes_a_data_file(folder, tmp_path):
    convert(open_source(folder), tmp_path / "data.h5", jobs=1)
    with EpisodeStore.open(tmp_path / "data.h5") as store:
        assert tuple(store.lengths) == LENGTHS
        assert set(store.column_names) == {"pixels", "action", "proprio"}
        action = np.load(folder / "action.npz")["arr_0"]
        assert np.array_equal(store.actions, action, equal_nan=True)
        assert np.array_equal(store[1].columns["proprio"], np.load(folder / "proprio.npz")["arr_0"][4:10])
        for episode, length in enumerate(LENGTHS):
            difference = store[episode].pixels.astype(int) - images(length, episode)
            assert np.abs(difference).mean() < 6


def test_frames_are_stored_at_the_size_asked_for(folder, tmp_path):
    source = open_source(folder, "stable-worldmodel", size=FrameSize(16))
    convert(source, tmp_path / "data.h5", jobs=1, num_episodes=2)
    with EpisodeStore.open(tmp_path / "data.h5") as store:
        assert store.frame_shape == (16, 16, 3)
        assert store.num_episodes == 2


@pytest.mark.parametrize("folder", ["images"], indirect=True)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: np.savez(root / "ep_offset.npz", np.array([0, 3, 10])), "ep_offset.npz does not follow from"),
        (lambda root: np.savez(root / "action.npz", np.zeros((3, 2))), "the episodes have 15 rows together"),
        (lambda root: (root / "action.npz").unlink(), "there is no column 'action'"),
        (lambda root: (root / "action.npz").write_bytes(b"PK nothing"), "no array `arr_0` of numbers"),
        (lambda root: np.savez(root / "state.npz", np.array([{}], dtype=object)), "no array `arr_0` of numbers"),
        (lambda root: (root / "pixels/ep_0_step_2.jpeg").unlink(), "3 frames for 4 rows"),
        (lambda root: (root / "pixels/ep_0_step_2.jpeg").write_bytes(b"no image"), "not an image that can be read"),
        (lambda root: (root / "pixels").rename(root.parent / "elsewhere"), "has no column of encoded images"),
    ],
)
def test_a_damaged_folder_is_refused_by_file_and_reason(folder, damage, message, tmp_path):
    damage(folder)
    with pytest.raises(InputError, match=message):
        convert(open_source(folder), tmp_path / "data.h5", jobs=1)


def test_without_its_package_a_lance_table_names_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "pusht.lance/_versions").mkdir(parents=True)
    monkeypatch.setitem(sys.modules, "lance", None)
    for path in (tmp_path, tmp_path / "pusht.lance"):  # the folder that holds one table means that table
        with pytest.raises(InputError, match=r"needs the package 'lance'.*pip install .*lance"):
            _ = open_source(path).num_episodes
    with pytest.raises(InputError, match="needs the package 'lance'"):
        data_file_of(tmp_path)
    (tmp_path / "other.lance").mkdir()
    with pytest.raises(InputError, match=r"several Lance tables; name one of other\.lance, pusht\.lance"):
        open_source(tmp_path)


def test_a_folder_given_as_a_data_file_names_the_line_that_converts_it(tmp_path):
    (tmp_path / "my data").mkdir()
    with pytest.raises(InputError, match=r"alewm convert '.*my data' --out FILE\.h5"):
        EpisodeStore.open(tmp_path / "my data")
    assert data_file_of(tmp_path / "my data") == tmp_path / "my data"
