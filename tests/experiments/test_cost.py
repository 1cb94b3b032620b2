"""Estimates of hours: they rest on recorded figures, scale as stated, and are what docs/reproduce.md says."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from alewm.config import overridden
from alewm.experiments.catalogue import RECIPES
from alewm.experiments.framework import cost
from alewm.experiments.framework.choice import Choice
from alewm.experiments.framework.cost import Cost, evaluation_seconds, update_cost
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.plan import estimated_hours
from alewm.experiments.framework.scale import make_scale
from alewm.experiments.framework.work import Evaluation
from alewm.experiments.presets import SEEDS, preset

ROOT = Path(__file__).parents[2]
PAPER = Choice(make_scale("paper"), SEEDS)


def recorded(name):
    (path,) = ROOT.glob(f"benchmarks/results/{name}_*_202611.json")
    return json.loads(path.read_text())


def test_the_figures_are_those_that_were_recorded():
    assert round(recorded("evaluate")["seconds"], 2) == cost.EVALUATION_SECONDS
    for task, seconds in cost.DRAWING_SECONDS.items():
        found = recorded(f"collect-{task}")
        assert seconds == pytest.approx(found["processes"] / found["drawn_frames_per_second"], rel=1e-3)
    page = (ROOT / "docs/performance.md").read_text()
    assert f"| {1000 * cost.UPDATE_SECONDS:.1f} ms (3,962 windows/s) |" in page
    assert f"**{1000 * cost.MIX_SIGREG_SECONDS:.2f} ms**" in page


def test_an_update_that_was_measured_costs_what_was_measured():
    for name in ("two-room-192", "cube-96", "push-t-192-lewm-8"):
        found = update_cost(preset(name))
        assert found.seconds == pytest.approx(cost.UPDATE_SECONDS)
        assert found.basis.endswith("ms per update, measured on an NVIDIA H200")


@pytest.mark.parametrize(
    ("change", "low", "high"),
    [
        # Twice the width is four times the maps and twice the attention, which has a fifth of the multiply-adds.
        ({"model.encoder.hidden_dim": 384, "model.encoder.mlp_dim": 1536}, 3.5, 3.7),
        ({"training.batch_size": 64}, 0.5, 0.5),
        ({"model.encoder.num_blocks": 24}, 1.95, 2.0),
        ({"objective.marginalises_capacity": True}, 1.01, 1.1),
        # 192 prefix lengths instead of eight: 23 times MixSIGReg's 0.45 ms more.
        ({"model.prior": "smooth"}, 1 + 23 * 0.45 / 32.3, 1 + 23 * 0.45 / 32.3),
    ],
)
def test_another_update_is_scaled_and_says_so(change, low, high):
    found = update_cost(overridden(preset("two-room-192"), change))
    assert low - 1e-9 <= found.seconds / cost.UPDATE_SECONDS <= high + 1e-9
    assert f"{found.seconds / cost.UPDATE_SECONDS:.2f} x 32.3 ms by arithmetic, itself not measured" in found.basis


def test_a_figure_of_one_s_own_takes_the_place_of_the_measured_one():
    own = update_cost(preset("push-t-384"), Cost(0.1, "as given"))
    assert own.seconds == pytest.approx(0.1 * update_cost(preset("push-t-384")).seconds / cost.UPDATE_SECONDS)
    assert "x 100.0 ms by arithmetic" in own.basis


def test_an_evaluation_pays_for_its_plans_and_for_its_frames():
    test, validation = PAPER.scale.evaluation(), PAPER.scale.evaluation("validation")
    seconds = evaluation_seconds(Evaluation(PAPER.alewm("two-room", 192, 1), test))
    assert seconds == pytest.approx(cost.EVALUATION_SECONDS)
    assert evaluation_seconds(Evaluation(PAPER.alewm("two-room", 192, 1), validation)) == pytest.approx(seconds / 2)
    best_of = replace(test, planning=replace(test.planning, capacity="best-of"))
    assert evaluation_seconds(Evaluation(PAPER.alewm("two-room", 192, 1), best_of)) == pytest.approx(8 * seconds)
    drawn = evaluation_seconds(Evaluation(PAPER.alewm("cube", 192, 1), test, num_animations=4)) - seconds
    assert drawn == pytest.approx((200 * 3 + 4 * 52) * 2 / 6.404)
    assert evaluation_seconds(Evaluation(PAPER.alewm("two-room", 384, 1), test)) > 2 * seconds


def test_the_page_says_what_a_dry_run_says(tmp_path):
    """The table of docs/reproduce.md, row by row; on failure the rows to paste are shown."""
    library, page = Library(tmp_path, tmp_path), (ROOT / "docs/reproduce.md").read_text()
    experiments = {name: each.build(replace(PAPER, seeds=each.seeds or SEEDS)) for name, each in RECIPES.items()}
    shared = {run.key for run in experiments["main-table"].runs}
    rows = {}
    for name, experiment in experiments.items():
        hours, keys = estimated_hours(experiment, library), [run.key for run in experiment.runs]
        num_shared = 0 if name == "main-table" else sum(key in shared for key in keys)
        alone = replace(experiment, runs=tuple(run for run in experiment.runs if run.key not in shared), stages=())
        added = hours if name == "main-table" else estimated_hours(alone, library)
        rows[name] = (
            f"| {len(keys)} | {num_shared} | {hours.training:.1f} | {added.training:.1f} | {hours.evaluation:.1f} |"
        )
    found = dict(re.findall(r"^\| `([\w-]+)` \| [^|]+ (\| \d+ \| \d+ \| [\d.]+ \| [\d.]+ \| [\d.]+ \|)$", page, re.M))
    assert found == rows
