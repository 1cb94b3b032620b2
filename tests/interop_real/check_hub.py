"""Models and data sets by their ids, OWNER/NAME: sent and fetched by the Hub's real client, to and from a stand-in.

The stand-in on loopback demands LFS for large files. Xet, the Hub's other way for them, is turned off: its storage
protocol has no stand-in.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
from hub_stand_in import LARGEST_REGULAR, TOKEN, HubStandIn
from huggingface_hub import ModelCard
from lerobot_frames import LENGTHS, frames

from alewm.data.store import EpisodeStore
from alewm.files import read_json
from alewm.interop.lewm import export_lewm
from alewm.interop.pretrained import SharedRun, save_pretrained

PUSH = "import sys; from pathlib import Path; from alewm.interop.hub import push_to_hub; "
PUSH += "push_to_hub(Path(sys.argv[1]), sys.argv[2])"
LOAD = "import sys, alewm; print(alewm.load(sys.argv[1], device='cpu').path)"
CLIENTS = {"huggingface_hub": "", "huggingface_hub 0.36.0": "transformers-4"}
"""Versions of the client, and the overlay that has it; the environment's own has none."""


@pytest.fixture
def hub():
    with HubStandIn() as stand_in:
        yield stand_in


@pytest.fixture
def python(hub, tmp_path, overlay_folder):
    """Runs Python in an empty folder as someone who has a token, and no packages or files of the Hub yet."""
    (tmp_path / "here").mkdir()

    def run(*words, overlay="", fails=False, **environment):
        variables = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_XET": "1"}
        variables |= {"HF_TOKEN": TOKEN, "PYTHONPATH": overlay_folder(overlay)}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *map(str, words)],
            cwd=tmp_path / "here",
            env={**os.environ, **variables, **environment},
            capture_output=True,
            text=True,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    return run


@pytest.mark.parametrize("client", CLIENTS)
def test_a_model_is_sent_by_lfs_and_evaluated_by_its_id(client, hub, python, shipped, tmp_path, found):
    name, overlay = "someone/two-room", CLIENTS[client]
    folder = save_pretrained(shipped["two-room-tiny"], tmp_path / "sent", name=name)
    python("-c", PUSH, folder, name, overlay=overlay)
    stored = hub.repositories["models", name]
    local = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert stored == local
    large = [content for content in local.values() if len(content) >= LARGEST_REGULAR]
    assert hub.seen["lfs file"] >= len(large) > 1
    assert hub.seen["lfs part"] > 1  # the weights, in several parts
    assert ModelCard(stored["README.md"].decode()).data.model_name == name

    assert "snapshots" in python("-c", LOAD, name, overlay=overlay)
    for _ in range(2):  # the second time, what was fetched is there
        said = python("-m", "alewm", "evaluate", name, "--episodes", 1, "--animations", 0, overlay=overlay)
    assert "1 of 1 episodes ended as published." in said
    assert said.splitlines()[-1].startswith(f"runs/{name}/evaluations/")
    assert hub.seen["fetched config.json"] <= 2  # once for the cache, once for the copy
    outcome = f"{len(local)} files, {hub.seen['lfs file']} by LFS, equal after; 1 of 1 episodes ended as published"
    found("a model sent to a stand-in that demands LFS, then `alewm evaluate OWNER/NAME`", (client,), outcome)


def test_imported_weights_have_the_licence_of_their_card_and_its_address(hub, python, shipped, tmp_path, found):
    export_lewm(shipped["two-room-tiny-lewm"], tmp_path / "lewm")
    files = {path.name: path.read_bytes() for path in (tmp_path / "lewm").iterdir()}
    card = b"---\nlicense: mit\n---\n# LeWM\n"
    hub.repositories["models", "authors/lewm"] = {**files, "README.md": card, "object.ckpt": b"never fetched"}
    words = ("import-lewm", "authors/lewm", "--task", "two-room", "--action-mean", 0, 0, "--action-std", 1, 1)
    python("-m", "alewm", *words, "--out", "run")
    origin = read_json(tmp_path / "here/run/result.json")["training"]
    assert (origin["license"], origin["repository"]) == ("mit", "authors/lewm")
    assert origin["revision"] == hub.revision("models", "authors/lewm")
    assert not hub.seen["fetched object.ckpt"]
    ours = SharedRun.of(tmp_path / "here/run").card("imported", tmp_path / "here/run")
    assert ModelCard(ours).data.license == "mit"
    assert "[authors/lewm](https://huggingface.co/authors/lewm) at revision" in ours
    said = python("-m", "alewm", *words, "--out", "other", "--license", "apache-2.0", fails=True)
    assert "states the licence 'mit'" in said
    outcome = "run made; licence and revision in its card"
    found("`alewm import-lewm OWNER/NAME`", ("huggingface_hub",), outcome)


def test_a_lerobot_data_set_is_converted_by_its_id(hub, python, with_overlay, tmp_path, found):
    with_overlay("lerobot-0.4.4", "lerobot_set.py", tmp_path / "set", "image")
    root = tmp_path / "set"
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    hub.repositories["datasets", "someone/robot"] = files
    python("-m", "alewm", "convert", "someone/robot", "--out", "robot.h5", "--image-size", "None", "--jobs", 1)
    with EpisodeStore.open(tmp_path / "here/robot.h5") as store:
        assert store.attributes["repository"].startswith("someone/robot at revision ")
        for episode in range(len(LENGTHS)):
            pixels, actions = frames(episode)
            assert np.array_equal(store[episode].pixels, pixels)
            assert np.array_equal(store[episode].columns["action"], actions)
    found("`alewm convert OWNER/NAME`", ("huggingface_hub", "lerobot 0.4.4"), "frames and actions equal")


def test_what_cannot_be_sent_or_fetched_is_said_in_one_line(hub, python, shipped, tmp_path):
    said = python("-c", PUSH, shipped["two-room-tiny"], "someone/other", fails=True, HF_TOKEN="wrong")
    assert "could not be sent to someone/other on the Hub" in said
    said = python("-m", "alewm", "evaluate", "nobody/nothing", fails=True)
    assert "nobody/nothing is no folder here, and could not be fetched from the Hub" in said
    assert "Traceback" not in said
    said = python("-m", "alewm", "evaluate", "nobody/nothing", fails=True, HF_ENDPOINT="http://127.0.0.1:9")
    assert "could not be fetched from the Hub" in said
    assert "Traceback" not in said
