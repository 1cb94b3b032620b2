"""`alewm demo` whole, at the scale of seconds."""

import json
from dataclasses import replace

import pytest
import torch

from alewm.demo import SCALES, run_demo
from alewm.errors import InputError


@pytest.mark.slow
def test_the_demo_compares_both_methods_and_is_not_repeated(alewm, alewm_here, refused, tmp_path):
    done = alewm("demo", "--scale", "smoke", "--out", "demo")
    assert done.stdout.splitlines()[-1] == "demo/report/index.html"
    assert "CEM" in done.stdout
    assert "training alewm and lewm: 12/12 updates" in done.stderr
    assert "planning with alewm and lewm: 16/16 plans" in done.stderr
    result = json.loads((tmp_path / "demo/result.json").read_text())
    assert result["alewm"]["support"][-1] == result["lewm"]["support"][-1]
    assert result["lewm"]["capacity_counts"] == {str(result["lewm"]["support"][-1]): 4}
    episodes = [(tmp_path / f"demo/{name}/episodes.jsonl").read_text().splitlines() for name in ("alewm", "lewm")]
    starts = [[(json.loads(line)["episode"], json.loads(line)["start_step"]) for line in lines] for lines in episodes]
    assert starts[0] == starts[1]
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "demo").glob("*/checkpoints/*")}
    assert stamps
    alewm_here("demo", "--scale", "smoke", "--out", "demo")
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert "seed: asked 1, found 3072" in refused("demo", "--scale", "smoke", "--seed", 1, "--out", "demo")


def test_a_full_size_model_is_not_begun_without_a_gpu(refused, tmp_path, monkeypatch):
    monkeypatch.setattr("alewm.demo.find_device", lambda _: torch.device("cpu"))
    assert "takes a GPU, and torch sees none here" in refused("demo", "--scale", "large", "--out", "large")
    assert not (tmp_path / "large").exists()


def test_a_worker_that_fails_while_episodes_are_recorded_is_reported(tmp_path, monkeypatch):
    """It has no data yet, and nobody is watching it: the message must not be lost."""
    broken = replace(SCALES["smoke"], changes={**SCALES["smoke"].changes, "training.acceleration": "graph"})
    monkeypatch.setitem(SCALES, "smoke", broken)
    with pytest.raises(InputError, match="Updates cannot be compiled: the device is a cpu"):
        run_demo(tmp_path / "demo", scale="smoke", seed=3072)
