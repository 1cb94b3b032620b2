"""`alewm-lab cell` on a small file: everything about one model, made once and published to one file."""

import json

import numpy as np
import pytest

from alewm.data.splits import Splits
from alewm.data.store import EpisodeStore
from alewm_lab.publishing.publish import publish_runs
from alewm_lab.publishing.published import read_results

SMALL = ("--steps", "4", "--batch-size", "8", "--candidates", "4", "--iterations", "1")
SMALL += ("--fit-frames", "40", "--fit-updates", "10", "--distill-frames", "300")
SMALL += ("--distill-updates", "10", "--decoder-updates", "5")


@pytest.fixture
def cell(alewm_here):
    """Runs `alewm-lab cell ...` in this process on a small file; what it printed."""
    short = ("--episodes", 20, "--max-steps", 40, "--image-size", 28, "--jobs", 1)
    alewm_here("collect", "two-room", "--out", "two-room.h5", *short)
    return lambda preset, *options: alewm_here(
        "cell", preset, "--data", "two-room.h5", "--device", "cpu", *SMALL, *options
    )


class CutError(Exception):
    pass


def test_a_cell_does_everything_once_and_comes_back_as_one_file(cell, tmp_path):
    run, shared = tmp_path / "runs" / "alewm", tmp_path / "shared" / "alewm"

    def cut(*_arguments, **_options):
        raise CutError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("alewm.evaluation.decoder.decode", cut)
        with pytest.raises(CutError):
            cell("two-room-tiny", "--out", "runs/alewm", "--share", "shared/alewm")
    assert (run / "measurements" / "probes.json").is_file()
    assert (shared / "distilled").is_dir()
    assert not (shared / "decoder").exists()
    made = {path: path.stat().st_mtime_ns for path in run.rglob("result.json")}

    said = cell("two-room-tiny", "--out", "runs/alewm", "--share", "shared/alewm")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("result.json")} == made
    evaluated = {path.parent.name for path in run.glob("evaluations/*/result.json")}
    search = "cem-4x1-2"
    imposed = {f"capacity-{k}_{search}" for k in (2, 4, 8, 16, 32)}
    pairs = ("", "5-per-episode_", "validation_", "validation_5-per-episode_")
    rest = {f"{each}{search}" for each in (*pairs, "goal-full_")}
    distilled = {f"{search}_dynamics-distilled", f"5-per-episode_{search}_dynamics-distilled"}
    assert evaluated == imposed | rest | distilled
    assert said.splitlines()[-2:] == ["shared/alewm", "runs/alewm"]
    assert (shared / "decoder").is_dir()
    assert json.loads((run / "decoder" / "decoder.json").read_text())["settings"]["num_updates"] == 5
    (distilled_to, *_) = run.glob("distilled/*/distilled.json")
    num_episodes = json.loads(distilled_to.read_text())["settings"]["num_episodes"]
    train = list(Splits.load(run / "splits.json").train)
    with EpisodeStore.open(tmp_path / "two-room.h5") as store:
        mean_length = np.mean(store.lengths[train])
    assert num_episodes * mean_length <= 300 < (num_episodes + 1) * mean_length

    cell("two-room-tiny", "--out", "runs/alewm", "--share", "shared/alewm")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("result.json")} == made

    cell("two-room-tiny-lewm", "--out", "runs/lewm")
    assert not list((tmp_path / "runs" / "lewm").glob("evaluations/capacity-*"))  # it has one capacity

    (tmp_path / "results").mkdir()
    published = publish_runs([run, tmp_path / "runs" / "lewm"], tmp_path / "results" / "long", allow_changes=True)
    assert published.path is not None
    (scale,) = read_results(tmp_path / "results").scales
    names = {name for each in scale.runs for name in each.evaluations}
    assert names == evaluated
    assert json.dumps(scale.runs[0].measurements["probes"])
