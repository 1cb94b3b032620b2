"""What `docs/data.md` shows is what happens: its examples run, and its recorder records any environment."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from PIL import Image

from alewm.cli.main import main
from alewm.data.store import EpisodeStore
from small_recordings import write_lerobot_v2, write_recordings

PAGE = (Path(__file__).parents[1] / "docs" / "data.md").read_text()
RECORDER, READER = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


class Lamp(gymnasium.Env):
    """A light that two buttons make brighter or darker; it goes out by itself after a while."""

    action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.light, self.age = self.np_random.uniform(0, 255), 0
        return np.array([self.light]), {}

    def step(self, action):
        self.light, self.age = np.clip(self.light + 20 * action[0], 0, 255), self.age + 1
        return np.array([self.light]), 0.0, False, self.age == 30, {}

    def render(self):
        return np.full((28, 28, 3), self.light, np.uint8)


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def alewm(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["alewm", *map(str, arguments)])
    main()


def test_the_recorder_is_short_and_its_file_can_be_trained_on(workshop, monkeypatch):
    assert len([line for line in RECORDER.splitlines() if line.strip()]) <= 20
    # Fewer pixels, so that a preset for a laptop reads the file as it is.
    example = RECORDER.replace('TwoRoom-v1")', 'TwoRoom-v1", image_size=28)')
    subprocess.run([sys.executable, "-c", example], cwd=workshop, check=True)
    with EpisodeStore.open("my-data.h5") as store:
        assert store.num_episodes == 5
        assert np.isnan(store.actions[store.index.last_rows]).all()
        assert np.isfinite(np.delete(store.actions, store.index.last_rows, axis=0)).all()
    few = ("--steps", 2, "--batch-size", 4, "--device", "cpu", "--threads", 1)
    alewm(monkeypatch, "train", "two-room-tiny", "--data", "my-data.h5", "--out", "run", *few)
    assert (workshop / "run/result.json").exists()


def test_the_recorder_records_another_environment_row_by_row(workshop):
    names: dict = {}
    exec(RECORDER.rpartition("\nrecord(")[0], names)
    lamp = Lamp()
    names["record"](lamp, "lamp.h5", num_episodes=2)
    with EpisodeStore.open("lamp.h5") as store:
        assert store.lengths.tolist() == [31, 31]
        pixels, actions = store.episode(1)["pixels"], store.episode(1)["action"]
    lamp.reset(seed=1)
    for frame, action in zip(pixels, actions, strict=True):
        np.testing.assert_array_equal(frame, lamp.render())
        if np.isfinite(action).all():
            lamp.step(action)


def test_the_reader_reads_what_collect_wrote(workshop, monkeypatch, capsys):
    alewm(
        monkeypatch, "collect", "two-room", "--episodes", 2, "--image-size", 8, "--jobs", 1, "--out", "data/two-room.h5"
    )
    capsys.readouterr()
    names: dict = {}
    exec(READER, names)
    assert capsys.readouterr().out.startswith("2 ")
    assert names["first"]["pixels"].dtype == np.uint8
    assert "proprio" in names["first"]


def test_drawn_frames_lie_beside_their_rows_as_described(workshop, monkeypatch):
    few = ("--episodes", 1, "--image-size", 28, "--jobs", 1)
    for name, draw_every in (("all.h5", 1), ("thin.h5", 5)):
        alewm(monkeypatch, "collect", "two-room", *few, "--draw-every", draw_every, "--out", name)
    assert '`first["action"][:: store.draw_every]`' in PAGE
    with EpisodeStore.open("all.h5") as every, EpisodeStore.open("thin.h5") as store:
        first, whole = store.episode(0), every.episode(0)
        assert len(first["pixels"]) == len(first["action"][:: store.draw_every]) < len(first["action"])
        np.testing.assert_array_equal(first["pixels"], whole["pixels"][:: store.draw_every])
        np.testing.assert_array_equal(first["action"], whole["action"])


def commands(verb):
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
    return [
        shlex.split(line)[1:] for block in blocks for line in block.splitlines() if line.startswith(f"alewm {verb}")
    ]


def test_recordings_are_converted_as_shown(workshop, monkeypatch):
    write_recordings(workshop / "recordings/my-robot", [5, 6])
    write_lerobot_v2(workshop / "lerobot/my-set", [5, 6])
    small = ("--image-size", 16, "--jobs", 1)  # the pictures of the tests are small
    for words in commands("convert"):
        alewm(monkeypatch, *words, *small)
    for name in ("my-robot", "my-set"):
        with EpisodeStore.open(f"data/{name}.h5") as store:
            assert store.lengths.tolist() == [5, 6]
            assert store.attributes.get("task") == ("my-task" if name == "my-set" else None)


def test_a_file_is_inspected_as_shown(workshop, monkeypatch, capsys):
    few = ("--episodes", 7, "--image-size", 8, "--jobs", 1)
    alewm(monkeypatch, "collect", "two-room", *few, "--out", "data/two-room.h5")
    for words in commands("inspect"):
        alewm(monkeypatch, *words)
    assert capsys.readouterr().out.splitlines()[-1] == "data/two-room.frames.png"
    with Image.open("data/two-room.frames.png") as sheet:
        assert sheet.size == (8 * 100 - 4, 6 * 100 - 4)
