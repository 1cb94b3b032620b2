"""The experiment of one model on two data sets, from stored results at the paper's scale."""

import json

import pytest

from alewm.errors import InputError
from alewm.sweeps.library import Library
from alewm.training.presets import SEEDS
from alewm_lab.experiments.capacity_dynamics import build_mixed as build
from alewm_lab.experiments.capacity_dynamics import q_over_training
from alewm_lab.experiments.experiment import Results
from alewm_lab.experiments.request import Request, make_scale
from smoke_runs import write_result

PAPER = Request(make_scale("paper"), SEEDS)


@pytest.fixture
def results(tmp_path):
    """Three seeds whose q of the smallest capacity is 0.1, 0.2 and 0.3 on Reacher, and half that on Two-Room."""
    library = Library(tmp_path, tmp_path)
    experiment = build(PAPER)
    for number, run in enumerate(experiment.runs, start=1):
        entry = {"step": 50, "kind": "train"}
        for name, share in (("reacher", 0.1), ("two-room", 0.05)):
            others = (1 - share * number) / 7
            entry |= {f"q/{name}/{k}": share * number if k == 8 else others for k in run.config.model.capacities}
        library.folder(run).mkdir()
        (library.folder(run) / "metrics.jsonl").write_text(json.dumps(entry) + "\n")
    for number, work in enumerate(experiment.works):
        is_reacher = work.settings.data_set == "reacher"
        rate, capacity = (0.9 - 0.1 * (number // 2), 64) if is_reacher else (0.5, 16)
        write_result(library, work.run, work.settings, success_rate=rate, mean_capacity=capacity)
    return Results(library)


def test_every_seed_is_planned_with_on_both_data_sets_and_results_lie_apart(tmp_path):
    experiment, library = build(PAPER), Library(tmp_path, tmp_path)
    works = experiment.works
    assert len({work.folder(library) for work in works}) == 2 * len(SEEDS)
    assert {work.settings.data_set for work in works} == experiment.data_sets == {"reacher", "two-room"}
    assert all(f"--task {work.settings.data_set}" in work.command(library) for work in works)


def test_the_table_has_the_paper_s_figures_beside_ours(results):
    success, capacities = build(PAPER).outcome(results).tables
    assert [[cell.text for cell in row] for row in success.rows] == [
        ["Reacher", "80.00 ± 5.77", "64.00 ± 0.00", "85.17 ± 0.73", "63.95 ± 0.05", "12.5", "12.5", "12.5"],
        ["Two-Room", "50.00 ± 0.00", "16.00 ± 0.00", "36.17 ± 1.01", "21.33 ± 5.33", "12.5", "12.5", "12.5"],
    ]
    assert [row[1].text for row in capacities.rows] == ["0.002", "0.200", "0.100"]


def test_q_is_averaged_over_seeds_and_begins_at_the_prior(results):
    steps, values = q_over_training(build(PAPER).runs, results, "reacher")[8]
    assert steps == [0, 50]
    assert values == pytest.approx([8**-3 / sum(rank**-3 for rank in range(1, 9)), 0.2], rel=1e-5)


def test_neither_data_set_can_be_left_out():
    with pytest.raises(InputError, match="one model on reacher and two-room together"):
        build(Request(PAPER.scale, SEEDS, only=("reacher",)))
    assert build(Request(PAPER.scale, SEEDS, only=("192",))).runs
