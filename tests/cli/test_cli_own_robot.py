"""A robot of one's own: trained on, planned with and saved as pages and messages say, without a simulator."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from alewm.api import load
from alewm.data.writer import StoreWriter
from alewm.interop.pretrained import save_pretrained
from alewm.planning.planner import PlanningConfig
from alewm.planning.search import CEMConfig
from command_line import run_alewm

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
FEW = ("--steps", 2, "--batch-size", 4, "--device", "cpu", "--threads", 1)
SEARCH = PlanningConfig(cem=CEMConfig(8, 1, 2))


def record_robot(path, num_actions=7, size=28, num_episodes=4, **attributes):
    path.parent.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    with StoreWriter(path, attributes=attributes) as writer:
        for _ in range(num_episodes):
            pixels = rng.integers(0, 256, (30, size, size, 3), dtype=np.uint8)
            writer.append({"pixels": pixels, "action": rng.normal(size=(30, num_actions)).astype(np.float32)})
    return path


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    """The folder in which the command of the page was given."""
    folder = tmp_path_factory.mktemp("robot")
    record_robot(folder / "my-data.h5", task="my-robot")
    (command,) = re.findall(r"^alewm (train .*my-robot.*)$", PAGE, flags=re.MULTILINE)
    run_alewm(folder, *shlex.split(command), *FEW)
    return folder


def test_a_file_of_another_robot_is_learned_from_by_doing_what_the_refusal_says(refused, alewm_here, tmp_path):
    for name, attributes in (("named", {"task": "my-robot"}), ("nameless", {})):
        record_robot(tmp_path / f"{name}.h5", **attributes)
        train = ("train", "two-room-tiny", "--data", f"{name}.h5", "--out", name, *FEW)
        advice = re.search(r"--set .*$", refused(*train), flags=re.MULTILINE)
        assert advice, "the refusal ends with what to add"
        assert alewm_here(*train, *shlex.split(advice[0])).splitlines()[-1] == name


def test_a_file_of_another_robot_names_its_task_and_its_actions(alewm_here, tmp_path):
    for name, attributes, task in (("arm", {"task": "my-arm"}, "my-arm"), ("nameless", {}, "nameless")):
        record_robot(tmp_path / f"{name}.h5", **attributes)
        alewm_here("train", "tiny", "--data", f"{name}.h5", "--out", name, *FEW)
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert (config["task"], config["model"]["action_dim"]) == (task, 35)
    alewm_here("train", "tiny", "--method", "lewm", "--data", "arm.h5", *FEW)
    config = json.loads((tmp_path / "runs/my-arm-tiny-lewm-3072/config.json").read_text())
    assert (config["task"], config["objective"]["method"]) == ("my-arm", "lewm")


def test_a_width_without_a_file_or_with_another_width_is_refused(refused):
    assert "--data FILE is needed" in refused("train", "tiny")
    assert "leave --width out" in refused("train", "tiny", "--width", "192", "--data", "arm.h5")


def test_the_model_is_planned_with_and_saved_without_an_environment(robot, tmp_path):
    save_pretrained(robot / "runs/my-robot", tmp_path / "saved")
    images = np.zeros((2, 28, 28, 3), np.uint8)
    plans = [load(run).planner(SEARCH)(*images) for run in (robot / "runs/my-robot", tmp_path / "saved")]
    assert plans[0].shape == (25, 7)
    assert (plans[0] == plans[1]).all()
    assert not list((tmp_path / "saved").glob("pairs*"))


def test_a_model_is_shared_without_an_environment_and_its_success_is_not_claimed(robot, alewm_here, tmp_path):
    for licence in ((), ("--license", "mit")):  # the second call changes the card alone
        said = alewm_here("share", robot / "runs/my-robot", "--out", "shared", *licence)
        assert "success was not measured" in said
    card = (tmp_path / "shared/README.md").read_text()
    assert "Not evaluated yet." in card
    assert "| licence | mit |" in card
    assert load(tmp_path / "shared").model.config == load(robot / "runs/my-robot").model.config


@pytest.mark.parametrize("verb", [("evaluate",), ("probe",)])
def test_what_needs_an_environment_says_so(robot, refused, tmp_path, verb):
    said = refused(*verb, robot / "runs/my-robot")
    assert "There is no environment for the task 'my-robot'; there are cube, push-t, reacher, two-room." in said
    assert not list(tmp_path.iterdir())


def test_a_file_without_the_states_of_its_task_says_which_columns_it_lacks(alewm_here, refused, tmp_path):
    record_robot(tmp_path / "frames.h5", num_actions=2)
    alewm_here("train", "two-room-tiny", "--data", "frames.h5", "--out", "run", *FEW)
    assert "frames.h5 lacks the columns proprio, from which the environment of 'two-room'" in refused("evaluate", "run")
    save_pretrained(tmp_path / "run", tmp_path / "saved")
    assert not list((tmp_path / "saved").glob("pairs*"))
