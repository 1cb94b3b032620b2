"""`alewm probe`: what a run's prefixes say of the state, kept where publishing and experiments find it."""

import json
import shutil

import numpy as np
import pytest

from alewm.data.writer import StoreWriter
from command_line import run_alewm

FEW = ("--frames", 200, "--test-frames", 60, "--updates", 20)


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    shutil.copytree(trained, folder / "run")
    return folder / "run"


def test_every_prefix_is_read_and_the_result_is_kept(run):
    done = run_alewm(run.parent, "probe", "run", *FEW)
    lines = done.stdout.splitlines()
    assert lines[-1] == "run/measurements/probes.json"
    kept = json.loads((run / "measurements/probes.json").read_text())
    assert kept["options"] == {"capacities": [2, 4, 8, 16, 32], "num_train": 200, "num_test": 60, "num_steps": 20}
    assert kept["measured"]["factors"] == ["proprio[0]", "proprio[1]"]
    assert lines[0].split() == ["linear", "R²", *(word for k in (2, 4, 8, 16, 32) for word in ("k", "=", str(k)))]
    whole = kept["measured"]["network"]["32"]["factors"]["proprio[1]"]
    (last,) = [line for line in lines[4:] if line.startswith("proprio[1]")]
    assert last.split()[-1] == f"{whole:.3f}"
    assert kept["made_with"]["command"].startswith("alewm probe run --frames 200")


def test_prefixes_can_be_asked_for(run, alewm_here):
    said = alewm_here("probe", run, *FEW, "--capacities", 3, 32)
    assert "k = 3   k = 32" in said
    assert said == alewm_here("probe", run, *FEW, "--capacities", 3, 32), "the same frames and the same first weights"


def test_frames_that_are_no_whole_multiple_of_the_encoder_s_are_averaged_as_in_training(alewm_here):
    few = ("--episodes", 8, "--max-steps", 40, "--jobs", 1)
    alewm_here("collect", "two-room", *few, "--image-size", 40, "--out", "forty.h5")
    alewm_here("train", "two-room-tiny", "--data", "forty.h5", "--out", "run", "--steps", 2, "--batch-size", 4)
    assert alewm_here("probe", "run", *FEW).splitlines()[-1] == "run/measurements/probes.json"


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, r"column 'proprio', row 0: [nan, nan] is no state"), (7.0, "never vary")]
)
def test_states_that_say_nothing_are_refused(alewm_here, refused, tmp_path, value, message):
    rng = np.random.default_rng(0)
    with StoreWriter(tmp_path / "still.h5") as writer:
        for _ in range(4):
            states = np.full((30, 2), value)
            pixels, actions = rng.integers(0, 256, (30, 28, 28, 3), dtype=np.uint8), rng.normal(size=(30, 2))
            writer.append({"pixels": pixels, "action": actions, "proprio": states})
    alewm_here("train", "two-room-tiny", "--data", "still.h5", "--out", "run", "--steps", 2, "--batch-size", 4)
    assert message in refused("probe", "run", *FEW)


def test_what_cannot_be_probed_is_refused(run, refused, data, tmp_path):
    assert "Name a run folder" in refused("probe")
    assert "is no run folder" in refused("probe", tmp_path)
    assert "--frames must be at least 2, got 0" in refused("probe", run, "--frames", 0)
    for wrong in ((8, 4), (4, 4), (0, 4), (4, 33)):
        assert "at most 32, the width of" in refused("probe", run, "--capacities", *wrong)
    run_alewm(tmp_path, "collect", "two-room", "--episodes", 16, "--seed", 9, "--image-size", 28, "--out", "other.h5")
    assert "was trained on data with fingerprint" in refused("probe", run, *FEW, "--data", tmp_path / "other.h5")
