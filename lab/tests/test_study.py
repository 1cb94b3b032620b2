"""The study is the paper's: its widths, weights, degrees and selected settings."""

from dataclasses import asdict, replace

from alewm_lab.oscillator.show import title_of
from alewm_lab.oscillator.study import (
    GRID_DEGREES,
    GRID_WEIGHTS,
    GRID_WIDTHS,
    OUR_ALEWM,
    PAPER_ALEWM,
    REMEDIES,
    OscillatorRun,
    default_study,
    sweep_study,
)


def test_the_sweep_is_the_paper_s_two_grids():
    runs = sweep_study([0]).runs
    lewm = {(run.latent_dim, run.reg_weight) for run in runs if run.method == "lewm"}
    alewm = {(run.prior_degree, run.reg_weight) for run in runs if run.method == "alewm"}
    assert lewm == {(width, weight) for width in range(2, 9) for weight in GRID_WEIGHTS}
    assert alewm == {(degree, weight) for degree in (-3, -1.5, -0.5, 0, 0.5, 1.5, 3) for weight in GRID_WEIGHTS}
    assert len(GRID_WEIGHTS) == 12
    assert len(runs) == 12 * (len(GRID_WIDTHS) + len(GRID_DEGREES))


def test_the_paper_s_selected_setting_is_part_of_the_default_study():
    runs = default_study([0, 1, 2]).runs
    assert PAPER_ALEWM.reg_weight == 0.01
    assert PAPER_ALEWM.prior_degree == -1.5
    assert {replace(PAPER_ALEWM, seed=seed) for seed in range(3)} <= set(runs)
    selected = {(run.latent_dim, run.reg_weight) for run in runs if run.method == "lewm"}
    assert selected == {(4, 0.005), (6, 0.005), (8, 0.0075)}


def test_optimisation_is_the_paper_s():
    run = PAPER_ALEWM
    assert (run.epochs, run.batch_size, run.learning_rate) == (200, 256, 1e-3)
    assert (run.weight_decay, run.clip_norm, run.num_projections) == (1e-4, 1.0, 64)


def test_groups_hold_every_run_once_and_only_runs_that_are_alike():
    study = sweep_study([0, 1], 3)
    groups = study.groups(5)
    assert sorted(run.name for group in groups for run in group) == sorted(run.name for run in study.runs)
    for group in groups:
        assert len(group) <= 5
        assert len({run.trains_alike for run in group}) == 1


def test_names_are_unique():
    study = sweep_study([0, 1], 3)
    assert len({run.name for run in study.runs}) == len(study.runs)


def title(run):
    return title_of({"method": run.method, "latent_dim": run.latent_dim, "config": asdict(run)})


def test_a_remedy_changes_one_thing_about_the_paper_s_setting_and_its_title_says_which():
    paper = asdict(PAPER_ALEWM)
    for run in REMEDIES:
        assert sum(value != paper[name] for name, value in asdict(run).items()) == 1
    assert [title(run) for run in REMEDIES] == [
        "ALeWM, paper's way, selector frozen",
        "ALeWM, paper's way, exact marginalisation",
        "ALeWM, paper's way",  # the column of s_q says which
        "ALeWM, paper's way, delay 0.125",
        "ALeWM, paper's way, delay 0.5",
        "ALeWM, paper's way, KL 0.01",
        "ALeWM, paper's way, KL 0.1",
    ]
    runs = default_study([0, 1], variants=("alewm-paper", "remedies")).runs
    assert len({run.name for run in runs}) == len(runs) == 2 * (1 + len(REMEDIES))


def test_titles_name_the_nearest_setting_whatever_the_search_tries():
    assert title(replace(OUR_ALEWM, seed=7, epochs=1)) == "ALeWM, ours"
    assert title(replace(OUR_ALEWM, control="marginal")) == "ALeWM, ours, exact marginalisation"
    for run in sweep_study([0]).runs:
        if run.method == "alewm":
            assert title(run) == "ALeWM, paper's way"
    assert title(OscillatorRun("lewm", latent_dim=6)) == "LeWM d=6"
