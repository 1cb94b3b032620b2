"""`alewm inspect`: what things are, and what is wrong with them."""

import json
import os
import shutil

import h5py
import numpy as np
import pytest
from PIL import Image

from alewm.data.inspection import contact_sheet, find_problems
from alewm.data.store import EpisodeStore
from alewm.data.writer import StoreWriter
from command_line import contents
from older_files import remove_checksums
from small_recordings import CAMERA, write_lerobot_v2


def test_a_data_file_is_described_and_pictured(alewm_here, data, tmp_path):
    file = shutil.copy(data, tmp_path / "two-room.h5")
    said = alewm_here("inspect", file).splitlines()
    with EpisodeStore.open(file) as store:
        assert f"16 episodes, {store.num_rows:,} rows, frames of 28 x 28" in said
        assert f"fingerprint {store.fingerprint}" in said
        mean = store.actions[~np.isnan(store.actions).any(axis=1)].mean(axis=0, dtype=np.float64)
        assert any(line.split()[:2] == ["0", f"{mean[0]:.4g}"] for line in said)
        sheet = contact_sheet(store)
    assert "task: two-room" in said
    (pixels,) = (line.split() for line in said if line.startswith("pixels "))
    assert pixels[1] == "uint8"
    assert "gzip" in pixels
    assert said[-2:] == ["no problem found", str(tmp_path / "two-room.frames.png")]
    with Image.open(tmp_path / "two-room.frames.png") as image:
        assert np.array_equal(np.array(image), np.array(sheet))


def test_a_contact_sheet_shows_first_and_last_frames_of_first_and_last_episodes(tmp_path):
    with StoreWriter(tmp_path / "a.h5") as writer:
        for episode in range(9):
            pixels = np.zeros((30, 96, 96, 3), np.uint8)
            pixels[..., 0], pixels[..., 1] = 10 * episode, np.arange(30)[:, None, None]
            writer.append({"pixels": pixels, "action": np.zeros((30, 1), np.float32)})
    with EpisodeStore.open(tmp_path / "a.h5") as store:
        sheet = np.array(contact_sheet(store, num_episodes=3, num_frames=4))
    assert sheet.shape == (3 * 100 - 4, 4 * 100 - 4, 3)
    assert sheet[0::100, 0::100, 0].tolist() == [[0] * 4, [40] * 4, [80] * 4]
    assert sheet[0, 0::100, 1].tolist() == [0, 10, 19, 29]
    assert (sheet[96:100] == sheet[96, 96]).all()


def test_problems_that_spoil_learning_are_listed(tmp_path):
    with StoreWriter(tmp_path / "odd.h5") as writer:
        for length in (8, 30):
            action = np.stack([np.arange(length), np.full(length, 0.5)], axis=1).astype(np.float32)
            writer.append({"pixels": np.full((length, 6, 8, 3), 7, np.uint8), "action": action})
    with EpisodeStore.open(tmp_path / "odd.h5") as store:
        found = "\n".join(find_problems(store))
    assert "Action dimension 1 never moves: it is always 0.5." in found
    assert "1 of 2 episodes are under 20 rows" in found
    assert "Only 1 episodes have 26 rows or more" in found
    assert "Frames are 6 x 8" in found
    assert "36 of 36 frames looked at are of one colour, for example row 0" in found
    assert "36 of 36 frames looked at equal the next one" in found


def test_a_file_that_cannot_be_used_is_shown_before_it_is_refused(data, tmp_path, alewm):
    file = shutil.copy(data, tmp_path / "bad.h5")
    with h5py.File(file, "r+") as content:
        content["action"][5] = np.inf
        del content["action"].attrs["alewm_crc32"]
        content.create_group("extra")
    done = alewm("inspect", "bad.h5", check=False)
    assert done.returncode == 2
    assert "distance_to_target  float32" in done.stdout
    assert "extra               group" in done.stdout
    assert "bad.h5, column 'action', row 5: an infinite action" in done.stderr
    assert not list(tmp_path.glob("*.png"))


def test_a_damaged_frame_is_found_unless_in_a_hurry(data, tmp_path, refused, alewm_here):
    file = shutil.copy(data, tmp_path / "foreign.h5")
    remove_checksums(file)
    with h5py.File(file) as content:
        where = content["pixels"].id.get_chunk_info_by_coord((777, 0, 0, 0))
    with file.open("r+b") as content:
        content.seek(where.byte_offset + 2)
        content.write(bytes(where.size - 2))
    assert "column 'pixels', row 777" in refused("inspect", file)
    assert alewm_here("inspect", file, "--quick", "--out", "sheet.png").splitlines()[-1] == "sheet.png"


def test_a_flipped_byte_of_a_file_with_checksums_is_found_even_in_a_hurry(data, tmp_path, refused, alewm_here):
    file = shutil.copy(data, tmp_path / "own.h5")
    assert "no problem found" in alewm_here("inspect", file)
    written = file.stat()
    with h5py.File(file) as content:
        where = content["pixels"].id.get_chunk_info_by_coord((777, 0, 0, 0))
    damaged = bytearray(file.read_bytes())
    damaged[where.byte_offset + where.size // 2] ^= 1
    file.write_bytes(damaged)
    os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))  # a failing disk does not say when it failed
    for hurry in ((), ("--quick",)):
        said = refused("inspect", file, *hurry)
        assert "column 'pixels', row 777: the stored frame differs from its checksum" in said


def test_a_run_and_its_checkpoint_say_what_they_are(alewm_here, trained, data):
    before = contents(trained)
    said = alewm_here("inspect", trained)
    assert "a training run\nafter 40 updates, finished\nmethod alewm, task two-room, seed 3072" in said
    assert f"learned from {data} (fingerprint " in said
    assert "validation/loss: " in said
    assert "made by: alewm train two-room-tiny" in said
    checkpoint = trained / "checkpoints/step-00000040"
    said = alewm_here("inspect", checkpoint)
    assert said.startswith(f"{checkpoint}: a checkpoint after 40 updates\nmethod alewm")
    assert "actions: mean " in said
    assert contents(trained) == before


@pytest.mark.parametrize("end", [b'{"step": 41, "kind": "tra', b"\xff\xfe\x00"])
def test_a_run_that_was_killed_while_writing_is_described_and_reported(alewm_here, trained, tmp_path, end):
    run = shutil.copytree(trained, tmp_path / "run")
    said = alewm_here("inspect", "run")
    with (run / "metrics.jsonl").open("ab") as metrics:
        metrics.write(end)
    assert alewm_here("inspect", "run") == said
    assert alewm_here("report", "run", "--out", "report")


def test_a_data_set_that_can_be_converted_says_how(alewm_here, refused, tmp_path):
    write_lerobot_v2(tmp_path / "set", [4, 4])
    said = alewm_here("inspect", "set")
    assert "set: 2 episodes at 10 fps (lerobot v2.1)\nTo make a data file of them: alewm convert set --out FILE" in said
    (tmp_path / "photos").mkdir()
    assert "photos holds no episode" in refused("inspect", "photos")
    (tmp_path / "photos/take0.png").write_bytes(b"")
    assert "Give the folder above it" in refused("inspect", "photos")
    assert "absent does not exist" in refused("inspect", "absent")
    (tmp_path / "text.h5").write_text("hello")
    assert "text.h5 is not an HDF5 file" in refused("inspect", "text.h5")


def test_a_folder_of_runs_or_data_files_says_what_is_in_it(alewm_here, refused, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs/my run")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.h5").touch()
    assert "alewm inspect 'runs/my run'" in alewm_here("inspect", "runs")
    assert "alewm inspect data/a.h5" in alewm_here("inspect", "data")
    assert "runs is no run folder, but holds some. Name one of them: runs/my run." in refused("evaluate", "runs")
    assert "It holds data/a.h5." in refused("train", "tiny", "--data", "data")
    assert "is a run folder; a data file was expected" in refused("train", "tiny", "--data", trained)
    said = refused("collect", "two-room", "--episodes", 1, "--jobs", 1, "--out", "data")
    assert "data is a folder. --out names the file to write" in said


def test_a_data_set_of_several_cameras_names_them(alewm_here, tmp_path):
    info = write_lerobot_v2(tmp_path / "my set", [4, 4]) / "meta/info.json"
    described = json.loads(info.read_text())
    described["features"]["observation.images.hand"] = described["features"][CAMERA]
    info.write_text(json.dumps(described))
    said = alewm_here("inspect", "my set").splitlines()
    assert said == [
        "my set: 2 episodes at 10 fps (lerobot v2.1)",
        f"cameras: {CAMERA}, observation.images.hand",
        "To make a data file of them: alewm convert 'my set' --camera KEY --out FILE",
    ]


@pytest.mark.parametrize("name", ["config.json", "checkpoint.json"])
def test_a_damaged_description_is_named(refused, tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("{")
    assert f"run/{name} is damaged" in refused("inspect", "run")
