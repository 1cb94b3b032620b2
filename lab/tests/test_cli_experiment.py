"""`alewm-lab experiment` and its page, as a person meets them."""

import json

import pytest


def test_the_list_names_every_experiment_with_a_line_each(alewm_here):
    lines = alewm_here("experiment", "--list").splitlines()
    names = [line.split()[0] for line in lines]
    assert names[:2] == ["main-table", "nested-dropout"]
    assert {"prefix-sweep", "sigreg-ablation", "goal-cost", "capacity-dynamics", "reacher-capacity"} <= set(names)
    assert {"rollouts", "theory", "oscillator", "selection-rules", "probes"} <= set(names)
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in lines)


def test_an_experiment_ends_in_a_page_that_results_can_make_again(alewm, alewm_here, refused, tmp_path):
    done = alewm("experiment", "capacity-dynamics", "--scale", "smoke", "--device", "cpu")
    page = "runs/experiments/capacity-dynamics-smoke/index.html"
    assert done.stdout.splitlines()[-1] == page
    assert "| task and seed | when |" in done.stdout
    text = (tmp_path / page).read_text()
    described = json.loads((tmp_path / page).with_name("experiment.json").read_text())
    assert described["command"] == "alewm-lab experiment capacity-dynamics --scale smoke --device cpu"
    assert described["command"] in text
    folder = tmp_path / "runs/experiments/capacity-dynamics-smoke"
    assert alewm_here("results", folder, "--out", "again").splitlines() == ["again/index.html"]
    assert (tmp_path / "again/index.html").read_text() == text
    (run,) = (path.parent for path in (tmp_path / "runs/smoke").glob("*/config.json"))
    assert "some are experiments" in refused("results", folder, run)
    assert "these folders are experiments" in refused("results", folder, "--marked", "README.md")
    left = alewm_here("experiment", "capacity-dynamics", "--scale", "smoke", "--dry-run")
    assert "1 runs, 1 of them finished" in left
    assert "alewm train" not in left


def test_the_oscillator_is_an_experiment_too(alewm_here):
    asked = alewm_here("experiment", "oscillator", "--scale", "smoke", "--dry-run")
    assert asked == "alewm-lab oscillator --out runs/oscillator/smoke --seeds 0 --epochs 1\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Name an experiment"),
        (("main-tabel",), "Did you mean 'main-table'"),
        (("main-table", "--only", "cubes", "--dry-run"), "Did you mean 'cube'"),
        (("nested-dropout", "--only", "reacher", "--dry-run"), "part of this experiment 'reacher'"),
        (("main-table", "--short-steps", 5), "for --scale short"),
        (("main-table", "--short-rate", 1e-4), "for --scale short"),
        (("main-table", "--scale", "short", "--short-rate", -1), "positive learning rate"),
        (("main-table", "--scale", "short", "--short-rate", "inf"), "positive learning rate"),
        (("goal-cost", "--search"), "compares no configurations"),
        (("goal-cost", "--scale", "smoke", "--only", "cube"), "scale smoke has one task and one width"),
        (("goal-cost", "--scale", "tiny", "--only", "cube"), "scale tiny has one task and one width"),
        (("mixed", "--scale", "tiny", "--dry-run"), "has Two-Room alone"),
        (("oscillator", "--scale", "tiny"), "The oscillator has the scales"),
        (("main-table", "--seeds", 1, 1), "Seeds must be distinct"),
        (("main-table", "--address", "auto"), "--address goes with --ray"),
        (("main-table", "--ray", "--jobs", 2), "Ray decides how many"),
        (("main-table", "--updates-per-second", 0, "--dry-run"), "must be positive"),
        (("prefix-sweep", "--device", "cpu"), "alewm collect two-room --out data/two-room.h5"),
        (("oscillator", "--only", "96"), "The oscillator has the scales"),
    ],
)
def test_what_cannot_be_done_is_refused(refused, arguments, message):
    assert message in refused("experiment", *arguments)
