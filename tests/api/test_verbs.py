"""`alewm.collect`, `alewm.train`, `alewm.evaluate`: what the commands do, from Python."""

import json
from pathlib import Path

import numpy as np
import pytest

import alewm
from alewm.errors import InputError

SMALL = {
    "steps": 3,
    "batch_size": 8,
    "device": "cpu",
    "set": {"training.validation_batches": 1, "objective.num_projections": 16},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("verbs")


@pytest.fixture(scope="module")
def store(folder):
    with alewm.collect("two-room", folder / "episodes.h5", episodes=40, image_size=28, jobs=1) as store:
        yield store


@pytest.fixture(scope="module")
def model(folder, store):
    return alewm.train("two-room-tiny", store.path, folder / "run", **SMALL)


def test_a_store_is_a_sequence_of_episodes(store):
    assert len(store) == 40
    assert sum(map(len, store)) == store.num_rows
    first, last = store[0], store[-1]
    assert (first.number, last.number) == (0, 39)
    assert first.pixels.shape == (len(first), 28, 28, 3)
    assert np.array_equal(last.action, store[39]["action"], equal_nan=True)
    assert "40 episodes" in repr(store)
    assert f"{len(first)} steps" in repr(first)
    assert "image/gif" in first._repr_html_()
    with pytest.raises(IndexError, match="episodes 0 to 39, not 40"):
        store[40]
    with pytest.raises(InputError, match="Did you mean 'pixels'"):
        first["pixel"]


def test_training_leaves_a_run_folder_and_asking_again_loads_it(folder, store, model):
    config = json.loads((folder / "run" / "config.json").read_text())
    assert (config["training"]["num_steps"], config["objective"]["num_projections"]) == (3, 16)
    assert model.path == folder / "run"
    before = (folder / "run" / "metrics.jsonl").read_bytes()
    again = alewm.train("two-room-tiny", str(store.path), str(folder / "run"), **SMALL)
    assert (folder / "run" / "metrics.jsonl").read_bytes() == before
    assert np.array_equal(again.encode(store[0].pixels[:2]), model.encode(store[0].pixels[:2]))


def test_evaluating_writes_what_the_command_writes(model):
    found = alewm.evaluate(model, episodes=2, candidates=20, iterations=2, device="cpu", animations=0)
    assert len(found.records) == 2
    assert json.loads(found.path.read_text())["success_rate"] == found.result["success_rate"]
    assert "success" in repr(found)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: alewm.train("two-room-tiny", "data.h5", step=3), "option of alewm.train 'step'.*'steps'"),
        (lambda: alewm.train("two-rom-tiny", "data.h5"), "Did you mean 'two-room"),
        (lambda: alewm.collect("two-rom", "data.h5"), "Did you mean 'two-room'"),
        (lambda: alewm.collect("two-room", "data.h5", copies=3), "--copies, --noise and --held-out"),
        (lambda: alewm.evaluate("nowhere"), "no run folder"),
        (lambda: alewm.evaluate("nowhere", episode=3), "'episodes'"),
    ],
)
def test_messages_are_those_of_the_commands_and_nothing_is_written(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        call()
    assert not list(Path().iterdir())
