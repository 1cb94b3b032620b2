"""Estimates of hours: they rest on recorded figures, scale as stated, and are what docs/reproduce.md says."""

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from alewm.sweeps.library import EvaluationWork, Library
from alewm.training.presets import SEEDS, preset
from alewm_lab.experiments import framework as cost
from alewm_lab.experiments.framework import RECIPES, estimated_hours, evaluation_cost, update_cost
from alewm_lab.experiments.request import Request, make_scale
from alewm_lab.publishing.published import read_results

ROOT = Path(__file__).parents[2]
PAPER = Request(make_scale("paper"), SEEDS)


TINY, SMALL = cost.UPDATE_SECONDS["two-room-192"], cost.UPDATE_SECONDS["two-room-384"]


def evaluation_seconds(work):
    return evaluation_cost(work).seconds


def recorded(name):
    (path,) = ROOT.glob(f"benchmarks/results/{name}_*_202611.json")
    return json.loads(path.read_text())


def recorded_updates(size):
    """Milliseconds of an update by what grows in it."""
    (panel,) = (each for each in recorded("scaling")["panels"] if (each["title"], each["size"]) == ("an update", size))
    return dict(panel["points"])


def test_the_figures_are_those_that_were_recorded():
    runs = [run for scale in read_results(ROOT / "results").scales for run in scale.runs]
    large, tiny = (
        next(run for run in runs if (run.run.name, run.config["task"]) == (name, "two-room"))
        for name in ("alewm-192-3072", "alewm-3074")
    )
    _, paces = large.run.scalars()["windows_per_second"]
    assert 128 / median(paces) == pytest.approx(TINY, rel=1e-4)
    assert round(recorded_updates("latent width D")[384] / 1000, 5) == SMALL
    assert round(recorded("evaluate")["seconds"], 2) == cost.EVALUATION_SECONDS
    trained = tiny.run.result["training"]
    assert trained["seconds"] / trained["step"] == pytest.approx(cost.UPDATE_SECONDS["two-room-tiny"], rel=1e-4)
    evaluated = tiny.evaluations["100-episodes_cem-300x10-30"]
    assert round(evaluated["seconds"], 1) == cost.TINY_EVALUATION_SECONDS
    for task, seconds in cost.DRAWING_SECONDS.items():
        found = recorded(f"collect-{task}")
        assert seconds == pytest.approx(found["processes"] / found["drawn_frames_per_second"], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("two-room-192", TINY), ("cube-96", TINY), ("push-t-192-lewm-8", TINY), ("reacher-384", SMALL)],
)
def test_an_update_that_was_measured_costs_what_was_measured(name, seconds):
    found = update_cost(preset(name))
    assert found.seconds == pytest.approx(seconds)
    assert found.basis.endswith(f": {1000 * seconds:.1f} ms per update, measured on an NVIDIA H200")


def test_the_latent_width_changes_nothing():
    by_width = recorded_updates("latent width D")
    assert by_width[96] == pytest.approx(by_width[192], rel=0.01)


@pytest.mark.parametrize(
    ("name", "basis"),
    [
        ("push-t-192", "100.0 ms per update, as given"),
        ("push-t-384", f"{SMALL / TINY:.2f} x the 100.0 ms given, as on an NVIDIA H200"),
    ],
)
def test_a_figure_of_one_s_own_takes_the_place_of_the_measured_one(name, basis):
    measured, own = update_cost(preset(name)), update_cost(preset(name), 0.1)
    assert own.seconds == pytest.approx(0.1 * measured.seconds / TINY)
    assert own.basis.endswith(basis)


def test_the_tiny_scale_is_estimated_on_the_core_it_was_measured_on():
    tiny = Request(make_scale("tiny"), SEEDS)
    run = tiny.alewm("two-room", 32, 1)
    assert update_cost(run.config).basis.endswith("56.2 ms per update, measured on an AMD EPYC core")
    assert update_cost(run.config, 0.1).basis.endswith("100.0 ms per update, as given")
    found = evaluation_cost(EvaluationWork(run, tiny.scale.evaluation()))
    assert found.seconds == pytest.approx(cost.TINY_EVALUATION_SECONDS)
    assert "per 100 Two-Room pairs with 10 iterations, measured on an AMD EPYC core" in found.basis
    drawn = EvaluationWork(replace(run, config=replace(run.config, task="cube")), tiny.scale.evaluation())
    assert evaluation_seconds(drawn) - found.seconds == pytest.approx(100 * 3 * 2 / 6.404)
    # All 200 pairs with three times the iterations, planned with each of five capacities.
    whole = replace(PAPER.scale.evaluation(), planning=replace(PAPER.scale.evaluation().planning, capacity="best-of"))
    assert evaluation_seconds(EvaluationWork(run, whole)) == pytest.approx(5 * 3 * 2 * found.seconds)


def test_an_evaluation_pays_for_its_plans_and_for_its_frames():
    test, validation = PAPER.scale.evaluation(), PAPER.scale.evaluation("validation")
    seconds = evaluation_seconds(EvaluationWork(PAPER.alewm("two-room", 192, 1), test))
    assert seconds == pytest.approx(cost.EVALUATION_SECONDS)
    assert evaluation_seconds(EvaluationWork(PAPER.alewm("two-room", 192, 1), validation)) == pytest.approx(seconds / 2)
    best_of = replace(test, planning=replace(test.planning, capacity="best-of"))
    assert evaluation_seconds(EvaluationWork(PAPER.alewm("two-room", 192, 1), best_of)) == pytest.approx(8 * seconds)
    drawn = evaluation_seconds(EvaluationWork(PAPER.alewm("cube", 192, 1), test, num_animations=4)) - seconds
    assert drawn == pytest.approx((200 * 3 + 4 * 52) * 2 / 6.404)
    assert evaluation_seconds(EvaluationWork(PAPER.alewm("two-room", 384, 1), test)) > 2 * seconds


def test_the_page_says_what_a_dry_run_says(tmp_path):
    """The table of docs/reproduce.md, row by row; on failure the rows to paste are shown."""
    library, page = Library(tmp_path, tmp_path), (ROOT / "docs/reproduce.md").read_text()
    experiments = {name: each.build(replace(PAPER, seeds=each.seeds or SEEDS)) for name, each in RECIPES.items()}
    shared = {run.key for run in experiments["main-table"].runs}
    rows = {}
    for name, experiment in experiments.items():
        hours, keys = estimated_hours(experiment, library), [run.key for run in experiment.runs]
        num_shared = 0 if name == "main-table" else sum(key in shared for key in keys)
        alone = replace(
            experiment, runs=tuple(run for run in experiment.runs if run.key not in shared), works=(), tests=None
        )
        added = hours if name == "main-table" else estimated_hours(alone, library)
        rows[name] = (
            f"| {len(keys)} | {num_shared} | {hours.training:.1f} | {added.training:.1f} | {hours.evaluation:.1f} |"
        )
    found = dict(re.findall(r"^\| `([\w-]+)` \| [^|]+ (\| \d+ \| \d+ \| [\d.]+ \| [\d.]+ \| [\d.]+ \|)$", page, re.M))
    assert found == rows
