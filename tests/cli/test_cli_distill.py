"""`alewm distill` and `alewm evaluate --dynamics`: small networks beside a run, and plans made with them."""

import json
import shutil

import pytest
import torch

import alewm as library
from alewm.api import load
from alewm.evaluation.distill_run import too_inaccurate
from alewm.planning.planner import PlanningConfig
from alewm.planning.search import CEMConfig
from alewm.training.distill import DistillConfig
from command_line import SEARCH, contents, run_alewm

QUICK = ("--updates", 20, "--hidden", 16, "--device", "cpu")


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    """A copy of the run, distilled for what its pairs choose."""
    folder = tmp_path_factory.mktemp("distilled")
    shutil.copytree(trained, folder / "run")
    done = run_alewm(folder, "distill", "run", *QUICK)
    assert done.stdout.splitlines()[-1] == "run/distilled"
    assert "5 ahead" in done.stdout
    return folder / "run"


def described(run, capacity):
    return json.loads((run / f"distilled/k{capacity}/distilled.json").read_text())


def test_there_is_a_network_for_every_capacity_that_pairs_choose(run):
    (first, *others) = sorted(path.name for path in (run / "distilled").glob("k*"))
    chosen = described(run, int(first[1:]))["training_pairs_by_capacity"]
    assert {first, *others} == {f"k{capacity}" for capacity in chosen}
    assert sum(chosen.values()) > 1
    errors = described(run, int(first[1:]))["validation_error"]
    assert len(errors["distilled"]) == len(errors["own"]) == 5


def test_repeating_the_command_finds_what_is_there(run, alewm_here):
    before = contents(run / "distilled")
    assert alewm_here("distill", run, *QUICK).splitlines()[-1] == str(run / "distilled")
    assert contents(run / "distilled") == before


def test_python_does_the_same(run, tmp_path):
    config = DistillConfig(num_updates=20, hidden_dim=16)
    found = library.distill(run, config=config, out=tmp_path / "again", device=torch.device("cpu"), is_silent=True)
    (capacity, *_) = found.networks
    name = f"k{capacity}/model.safetensors"
    assert (found.path / name).read_bytes() == (run / "distilled" / name).read_bytes()


def test_another_setting_is_refused_with_the_difference(run, refused):
    before = contents(run / "distilled")
    said = refused("distill", run, "--updates", 21, "--hidden", 16)
    assert "settings.num_updates: asked 21, found 20" in said
    assert "--out" in said
    assert "Capacity 5 is not supported" in refused("distill", run, "--capacity", 5)
    assert "--horizon" in refused("distill", run, *QUICK, "--horizon", 90, "--out", "long")
    assert contents(run / "distilled") == before


def test_a_network_that_predicts_worse_than_the_model_is_announced(run):
    found = library.distill(run, is_silent=True, config=DistillConfig(num_updates=20, hidden_dim=16)).networks
    (capacity, each), *_ = found.items()
    for distilled, is_worse in ((0.3, True), (0.1, False)):
        errors = {"distilled": [0.1, distilled], "own": [0.2, 0.2]}
        notes = too_inaccurate({capacity: each | {"validation_error": errors}})
        assert len(notes) == is_worse
        assert all("its error is 0.300 of the variance, the model's 0.200" in note for note in notes)
        assert all("--updates 80" in note for note in notes)


def test_plans_are_made_with_it_and_the_result_says_so(run, alewm_here):
    said = alewm_here("evaluate", run, *SEARCH, "--dynamics", "distilled", "--animations", 0)
    folder = run / "evaluations/cem-20x2-2_dynamics-distilled"
    assert said.splitlines()[-1] == str(folder / "result.json")
    result = json.loads((folder / "result.json").read_text())
    assert result["evaluated"]["dynamics"] == "distilled"
    assert set(result["evaluated"]["dynamics_sha256"]) == {str(k) for k in result["distilled_capacities"]}
    for capacity, fit in result["distilled_fits"].items():
        described = json.loads((run / f"distilled/k{capacity}/distilled.json").read_text())
        assert fit.pop("sha256") == result["evaluated"]["dynamics_sha256"][capacity]
        assert fit == {name: described[name] for name in fit}
        assert fit["settings"]["num_updates"] == 20
    planned = {int(k) for k, count in result["capacity_counts"].items() if count}
    outside = sum(result["capacity_counts"][str(k)] for k in planned - set(result["distilled_capacities"]))
    assert result["episodes_with_own_predictor"] == outside


def test_a_capacity_without_a_network_falls_back_and_one_more_network_mends_it(run, tmp_path, alewm_here):
    copy = shutil.copytree(run, tmp_path / "copy")
    asked = ("evaluate", copy, *SEARCH, "--dynamics", "distilled", "--capacity", 16, "--animations", 0)
    place = copy / "evaluations/capacity-16_cem-20x2-2_dynamics-distilled/result.json"
    assert 16 not in {int(path.name[1:]) for path in (copy / "distilled").glob("k*")}
    alewm_here(*asked)
    assert json.loads(place.read_text())["episodes_with_own_predictor"] == 3
    alewm_here("distill", copy, "--updates", 25, "--hidden", 8, "--capacity", 16)
    shutil.rmtree(place.parent)
    alewm_here(*asked)
    assert json.loads(place.read_text())["episodes_with_own_predictor"] == 0


def test_the_report_draws_its_error_by_blocks_ahead(run, tmp_path, alewm_here):
    alewm_here("report", run, "--out", "page")
    figure = (tmp_path / f"page/figures/imagination-{run.name}.svg").read_text()
    assert "blocks ahead" in figure
    assert "distilled, k = " in figure


def test_weights_that_were_trained_further_refuse_the_old_network(run, tmp_path, refused):
    copy = shutil.copytree(run, tmp_path / "copy")
    newest = sorted((copy / "checkpoints").glob("step-*"))[-1]
    shutil.rmtree(newest)
    said = refused("evaluate", copy, *SEARCH, "--dynamics", "distilled")
    assert "was fitted to other weights" in said
    assert "weights_sha256: asked" in refused("distill", copy, *QUICK)


def test_dynamics_that_are_not_there_are_refused(trained, refused):
    assert "alewm distill" in refused("evaluate", trained, *SEARCH, "--dynamics", "distilled")
    assert "holds no distilled dynamics" in refused("evaluate", trained, *SEARCH, "--dynamics", "elsewhere")


def test_a_shared_model_brings_its_dynamics_along(run, tmp_path, alewm_here):
    """Also where its weights were rounded, and so have another hash."""
    done = alewm_here("share", run, "--out", "shared", "--weights", "bfloat16", "--device", "cpu", "--animations", 0)
    assert done.splitlines()[-1] == "shared"
    shared = tmp_path / "shared"
    (folder, *_) = sorted((shared / "distilled").glob("k*"))
    here, there = described(shared, folder.name[1:]), described(run, folder.name[1:])
    assert here["weights_sha256"] != there["weights_sha256"]
    assert here["validation_error"] == there["validation_error"]
    assert "With the distilled dynamics in `distilled/`" in (shared / "README.md").read_text()
    assert str(tmp_path) not in (folder / "distilled.json").read_text()
    published = json.loads((shared / "evaluations/dynamics-distilled/result.json").read_text())
    planner = load(shared, dynamics="distilled").planner(PlanningConfig(cem=CEMConfig(20, 2, 2)))
    assert list(planner.model.capacities) == published["distilled_capacities"]
