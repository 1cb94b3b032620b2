"""Every benchmark ends in a line of JSON with what it measured."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from alewm.data.store import EpisodeStore
from alewm.training.presets import preset
from command_line import IMAGE_SIZE
from human_demonstrations import demonstrations
from published_files import write_published

TINY = ("--preset", "two-room-tiny", "--device", "cpu")
FEW = ("--candidates", 10, "--iterations", 1)
FEW_ROWS = (
    *("--device", "cpu", "--rows", 65, "--tokens", 65, "--width", 64, "--hidden", 64, "--heads", 1),
    *("--repeats", 1, "--blocks", 1),
)
SMALL_SIZES = (
    *(*FEW, "--episodes", 1, 2, "--batches", 8, "--repeats", 1),
    *("--presets", "two-room-tiny", "--projections", 4, 8, "--out", "scaling.png"),
)


@pytest.mark.parametrize(
    ("arguments", "measured"),
    [
        (("collect", "--episodes", 2, "--image-size", IMAGE_SIZE, "--jobs", 1), "stored_frames_per_second"),
        (("replay-simulated", "--task", "reacher", "--episodes", 8), "replay_success_rate"),
        (("loader", "--episodes", 2, "--image-size", IMAGE_SIZE, "--batch", 8, "--batches", 2), "windows_per_second"),
        (("train-step", *TINY, "--batch", 8, "--repeats", 1, "--reference"), "milliseconds"),
        (("encoder-blocks", *FEW_ROWS, "--tiles", "16,64,4,1"), "kernels"),
        (("distilled", *TINY, *FEW, "--repeats", 1, "--capacities", 4), "by_capacity"),
        (("planner", *TINY, "--episodes", 1, *FEW, "--repeats", 1, "--reference"), "milliseconds_by_capacity"),
        (("evaluate", *TINY, "--episodes", 2, *FEW), "seconds_planning"),
        (("push-t", "--demonstrations", 1), "env_steps_per_second"),
        (("scaling", *TINY, *SMALL_SIZES), "panels"),
    ],
)
def test_a_benchmark_ends_in_a_line_of_json(alewm_here, arguments, measured):
    line = json.loads(alewm_here("bench", *arguments).splitlines()[-1])
    assert line["bench"] == arguments[0]
    assert line[measured]
    assert line["made_with"]["command"].startswith("alewm-lab bench")


def test_human_demonstrations_replay_to_where_they_ended(alewm_here, tmp_path):
    np.savez(tmp_path / "human.npz", **demonstrations())
    said = alewm_here("bench", "push-t", "--human", "human.npz")
    assert "10 below 1" in said
    line = json.loads(said.splitlines()[-1])
    assert line["error_max"] < 0.01
    assert line["demonstrations"] == 10


def test_bytes_are_counted_per_frame_that_was_drawn(alewm_here, tmp_path):
    few = ("--episodes", 2, "--image-size", IMAGE_SIZE, "--jobs", 1)
    alewm_here("collect", "two-room", *few, "--draw-every", 5, "--out", "thin.h5")
    line = json.loads(alewm_here("bench", "loader", "--data", "thin.h5", "--batch", 8, "--batches", 2).splitlines()[-1])
    with EpisodeStore.open(tmp_path / "thin.h5") as store:
        assert store.num_frames < store.num_rows
        assert line["bytes_per_frame"] == line["file_bytes"] / store.num_frames


def test_what_repeats_itself_is_timed_beside_what_need_not(alewm_here):
    said = alewm_here("bench", "train-step", *TINY, "--batch", 8, "--repeats", 1, "--deterministic")
    line = json.loads(said.splitlines()[-1])
    assert list(line["rows"]) == ["none, repeatable", "none"]
    assert line["milliseconds"] == line["rows"]["none, repeatable"]["milliseconds"]


def test_panels_measured_apart_are_drawn_together(alewm_here, refused, tmp_path):
    small = ("--preset", "two-room-tiny", "--device", "cpu", "--repeats", 1, "--projections", 4, "--batches", 8)
    lines = alewm_here("bench", "scaling", "--costs", "regularizer", *small, "--out", tmp_path / "a.png").splitlines()
    assert [panel["size"] for panel in json.loads(lines[-1])["panels"]] == ["projections", "windows"]
    kept, other = tmp_path / "kept.json", tmp_path / "other.json"
    kept.write_text(lines[-1])
    said = alewm_here("bench", "scaling", "--costs", "state", "--preset", "two-room-tiny", "--out", tmp_path / "c.png")
    (state,) = json.loads(said.splitlines()[-1])["panels"]
    assert state["points"] == [[k, 4 * k] for k in preset("two-room-tiny").model.capacities]  # float32
    other.write_text(said.splitlines()[-1])
    alewm_here("bench", "scaling", "--kept", kept, other, "--out", tmp_path / "b.png")
    assert (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"
    panel = {"title": "a plan", "size": "windows", "points": [[1, 2.0]]}
    whole = {**json.loads(lines[-1]), "panels": [panel]}
    wrong_panels = [{**panel, "colour": "red"}, {**panel, "points": [[1, "x"]]}, {"title": "a plan", "points": []}, 1]
    damaged = [{**whole, "panels": [each]} for each in wrong_panels]
    damaged += [{"bench": "planner"}, {"bench": "scaling"}, [1], {**whole, "made_with": {}}, {**whole, "panels": []}]
    for content in damaged:
        other.write_text(json.dumps(content))
        assert "holds no line of `alewm-lab bench scaling`" in refused("bench", "scaling", "--kept", kept, other)
    assert "Name what is to be measured" in refused("bench", "scaling", "--costs")
    assert str(tmp_path) not in lines[-1]  # lines are kept in a repository


@pytest.mark.slow
def test_from_nothing_times_a_demonstration_and_keeps_its_runs(alewm_here, refused):
    asked = ("bench", "from-nothing", "--scale", "smoke", "--seeds", 3073, "--out", "kept")
    line = json.loads(alewm_here(*asked).splitlines()[-1])
    (found,) = line["seeds"]
    assert found["total_seconds"] > found["collect_seconds"] + found["learn_seconds"] > found["training_seconds"] > 0
    assert line["mean_total_seconds"] == found["total_seconds"]
    assert (found["seed"], found["updates"], found["episodes"]) == (3073, 6, 4)
    assert 0 <= line["mean_success_rate"] == found["success_rate"] <= 1
    config = json.loads(Path("kept/seed-3073/demo/alewm/config.json").read_text())
    assert config["training"]["seed"] == 3073
    assert not Path("kept/seed-3073/demo/two-room.h5").exists()
    assert "exists already, and this begins with nothing" in refused(*asked)


def test_recorded_actions_reach_their_goals_and_the_floors_are_those_of_an_evaluation(alewm_here, refused, data):
    line = json.loads(alewm_here("bench", "replay", data).splitlines()[-1])
    assert line["task"] == "two-room"
    assert (line["pairs"], line["replay_success_rate"]) == (3, 1.0)
    assert line["zero_success_rate"] == line["presolved_share"]
    assert json.loads(alewm_here("bench", "replay", data, "--pairs", 2).splitlines()[-1])["pairs"] == 2
    assert "holds episodes of 'two-room', not of 'reacher'" in refused("bench", "replay", data, "--task", "reacher")
    search = ("--data", data, "--candidates", 20, "--iterations", 5, "--jobs", 1)
    planned = json.loads(alewm_here("bench", "true-simulator", *search).splitlines()[-1])
    assert (planned["pairs"], planned["random_success_rate"]) == (3, line["random_success_rate"])
    assert planned["planned_success_rate"] >= line["random_success_rate"]


def test_a_file_that_does_not_name_its_task_needs_it_named(alewm_here, refused, tmp_path):
    write_published(tmp_path / "tworoom.h5", "tworoom")
    assert "add --task, for example --task two-room" in refused("bench", "replay", "tworoom.h5")
    said = alewm_here("bench", "replay", "tworoom.h5", "--task", "two-room")
    assert json.loads(said.splitlines()[-1])["pairs"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("loader", "--data", "missing.h5"), "missing.h5 does not exist"),
        (("regularizer", "--repeats", 0), "--repeats must be at least 1, got 0"),
        (("regularizer", "--device", "gpu"), "choose auto, cpu, cuda, mps"),
        (("train-step", *TINY, "--acceleration", "compile"), "Updates cannot be compiled: the device is a cpu"),
        (("train-step", *TINY, "--batch", 8, "--repeats", 1, "--profile"), "A profile of kernels needs a GPU"),
        (("drawing", "--device", "cpu", "--profile"), "A profile of kernels needs a GPU"),
        (("encoder-blocks", *FEW_ROWS, "--hidden", 96), "cannot be fused: a hidden width of 96 is not a multiple"),
        (("encoder-blocks", *FEW_ROWS, "--tokens", 4), "one more than a square, got 65 and 4"),
        (("encoder-blocks", *FEW_ROWS, "--blocks", 0), "--blocks must be at least 1, got 0"),
        (("encoder-blocks", *FEW_ROWS, "--tiles", "64,32"), "written rows,chunk,warps,stages,resident"),
        (("planner", *TINY, "--capacities", 5), "5"),
        (("planner", "--preset", "two-room-tinny"), "Did you mean 'two-room-tiny'?"),
        (("evaluate", "--preset", "push-t-192"), "preset of two-room"),
        (("push-t", "--demonstrations", 0), "at least 1, got 0"),
        (("true-simulator",), "Say which task to simulate with --task, or which file's pairs to take with --data"),
        (("true-simulator", "--task", "reachr"), "Did you mean 'reacher'?"),
        (("true-simulator", "--task", "two-room", "--every", 0), "--every must be at least 1, got 0"),
        (("true-simulator", "--data", "missing.h5"), "missing.h5 does not exist"),
        (("replay", "missing.h5"), "missing.h5 does not exist"),
        (("check", "--device", "cpu"), "The fast paths checked here are those of a GPU"),
        (("replay-simulated", "--task", "cube", "--behaviour", "no-goals"), "Did you mean 'new-goals'?"),
        (("replay-simulated", "--episodes", 0), "--episodes must be at least 1, got 0"),
        (("from-nothing", "--scale", "smoke", "--seeds", 1, 1), "Seeds must be distinct"),
    ],
)
def test_bad_input_gets_a_message(refused, arguments, message):
    assert message in refused("bench", *arguments)


def test_the_command_line_loads_nothing_heavy():
    probe = "import sys, alewm_lab.cli.main; print(*{'torch', 'numpy', 'h5py', 'matplotlib'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
