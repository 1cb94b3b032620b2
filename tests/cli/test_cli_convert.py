"""`alewm convert`: a folder of recordings, as one file."""

import shutil

import h5py
import numpy as np
import pytest

from alewm.data.store import EpisodeStore
from older_files import as_older_version, remove_checksums
from published_files import write_published
from small_recordings import FPS, frames, write_lerobot_v3, write_recordings, write_video


def test_two_processes_write_the_bytes_of_one_and_say_what_they_wrote(alewm, alewm_here, tmp_path):
    write_lerobot_v3(tmp_path / "set", [6, 8, 5])
    settings = ("convert", "set", "--image-size", 16, "--fit", "crop", "--task", "two-room")
    said = alewm_here(*settings, "--jobs", 1, "--out", "deep/one.h5").splitlines()
    assert said[-1] == "deep/one.h5"
    assert "frames of 16 x 16, 2 numbers per action; also next.done, observation.state, timestamp" in said
    assert f"At {FPS} rows per second the 4 frames of a training window, 5 rows apart, span 1.50 s." in said
    alewm(*settings, "--jobs", 2, "--out", "two.h5")
    assert (tmp_path / "deep/one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()
    assert "complete already: 3 episodes" in alewm_here(*settings, "--out", "two.h5")
    with EpisodeStore.open(tmp_path / "two.h5") as store:
        assert store.attributes["fit"] == "crop"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent",), "absent is no folder"),
        (("set",), "frames of 32 x 48 pixels cannot be stored at 224 x 224. Choose --image-size from 1 to 32"),
        (("set", "--episodes", 2), "has 1 episodes; --episodes is from 1 to that, got 2"),
        (("set", "--fps", 0), "--fps is a positive number of rows per second, got 0"),
        (("set", "--format", "lerobot"), "is no LeRobot data set"),
        (("set", "--image-size", 8), "episode 'a' has no actions"),
        (
            ("set/a.mp4",),
            "a.mp4 is one file of a recording. Give the folder that holds all of them: alewm convert set",
        ),
    ],
)
def test_bad_input_gets_a_message_and_no_file(refused, tmp_path, arguments, message):
    write_video(tmp_path / "set/a.mp4", frames(0, 3))
    assert message in refused("convert", *arguments, "--jobs", 1, "--out", "out.h5")
    assert not (tmp_path / "out.h5").exists()


def test_a_file_is_not_copied_onto_itself(refused, data):
    before = data.read_bytes()
    assert "--out names the source itself" in refused("convert", data, "--out", data)
    assert data.read_bytes() == before


def test_a_refused_size_is_corrected_by_repeating_the_command(refused, alewm_here, tmp_path):
    write_recordings(tmp_path / "set", [5, 6])
    assert "Choose --image-size from 1 to 32" in refused("convert", "set", "--out", "out.h5", "--jobs", 1)
    assert "frames of 32 x 32" in alewm_here("convert", "set", "--out", "out.h5", "--jobs", 1, "--image-size", 32)


def test_a_file_where_a_folder_is_needed_is_named(refused, tmp_path):
    write_recordings(tmp_path / "set", [5])
    (tmp_path / "taken.h5").touch()
    said = refused("convert", "set", "--image-size", 16, "--jobs", 1, "--out", "taken.h5/x.h5")
    assert "taken.h5 is a file, where a folder is needed" in said


def test_the_copy_of_an_older_file_holds_what_is_collected_today(data, alewm_here, refused, tmp_path):
    old = as_older_version(shutil.copy(data, tmp_path / "old.h5"), 1)
    assert "alewm convert old.h5 --out NEW" in alewm_here("inspect", "old.h5", "--out", "sheet.png")
    assert alewm_here("convert", "old.h5", "--out", "new.h5").splitlines()[-1] == "new.h5"
    with h5py.File(data) as first, h5py.File(tmp_path / "new.h5") as second:
        assert first.keys() == second.keys()
        for name in first:
            np.testing.assert_array_equal(first[name][()], second[name][()])
            np.testing.assert_array_equal(first[name].attrs["alewm_crc32"], second[name].attrs["alewm_crc32"])
        assert dict(first.attrs) == dict(second.attrs)
    assert "file version 3; every column has checksums" in alewm_here("inspect", "new.h5", "--out", "sheet.png")
    assert "--image-size, --task is for folders" in refused(
        "convert", old, "--out", "b.h5", "--task", "x", "--image-size", 8
    )


def test_files_from_elsewhere_are_copied_and_say_where_from(data, alewm_here, tmp_path):
    foreign = remove_checksums(shutil.copy(data, tmp_path / "foreign.h5"))
    with h5py.File(foreign, "r+") as file:
        del file.attrs["alewm_attributes"], file.attrs["alewm_encoder"]
    alewm_here("convert", "foreign.h5", "--out", "new.h5", "--jobs", 1)
    with EpisodeStore.open(foreign) as before, EpisodeStore.open(tmp_path / "new.h5") as store:
        assert store.fingerprint == before.fingerprint
        assert store.attributes["source"] == {"file": "foreign.h5", "fingerprint": before.fingerprint}
    write_published(tmp_path / "cube.h5", "cube_single_expert")
    said = alewm_here("convert", "cube.h5", "--out", "cube-new.h5", "--jobs", 1)
    assert "Left out, since they hold no numbers for each row: privileged_target_task." in said
