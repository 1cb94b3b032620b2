"""Every registered task through every verb, at its own 224 pixels: the full protocol with fewer of everything."""

import json

import pytest

from alewm.envs.registry import OUR_TASKS, get_task
from alewm_lab.benchmarks.data_statistics import published_figures

FEWEST_STEPS = 25
"""Environment steps of an episode that can be held out: a start and a goal 25 steps later."""

COLLECT = ("--episodes", 3, "--max-steps", FEWEST_STEPS)
SPLIT = ("--split", "episode")  # three episodes of Push-T are copies of one demonstration
TRAIN = (*SPLIT, "--steps", 2, "--batch-size", 2, "--threads", 1, "--device", "cpu")
EVALUATE = ("--candidates", 4, "--iterations", 1, "--horizon", 1, "--budget", 5, "--animations", 0, "--device", "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", OUR_TASKS)
def test_a_task_is_collected_trained_planned_in_evaluated_and_reported(name, alewm, alewm_here, tmp_path):
    data = f"{name}.h5"
    thin = ("--draw-every", 5) if name == "cube" else ()  # a frame takes a third of a second
    assert alewm("collect", name, *COLLECT, *thin, "--out", data).stdout.splitlines()[-1] == data
    figures = json.loads(alewm_here("bench", "data", data).splitlines()[-1])["figures"]
    assert figures["rows"] == 3 * (FEWEST_STEPS + 1)
    assert set(published_figures(get_task(name))) <= set(figures), "published figures that are not measured"

    replayed = json.loads(alewm_here("bench", "replay", data, *SPLIT).splitlines()[-1])
    assert (replayed["task"], replayed["pairs"]) == (name, 1)

    assert alewm_here("train", f"{name}-96", "--data", data, "--out", "run", *TRAIN).split() == ["run"]
    assert alewm_here("evaluate", "run", *EVALUATE, "--out", "run").splitlines()[-1] == "run/result.json"
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["episodes"] == 1
    assert result["presolved_share"] == replayed["presolved_share"]
    assert 0 <= result["random_success_rate"] <= 1

    assert alewm_here("report", "run", "--out", "page").splitlines()[-1] == "page/index.html"
    assert name in (tmp_path / "page/index.html").read_text()
