"""The study is the paper's: its widths, weights, degrees and selected settings."""

from dataclasses import replace

from alewm.experiments.oscillator.study import (
    GRID_DEGREES,
    GRID_WEIGHTS,
    GRID_WIDTHS,
    PAPER_ALEWM,
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
    assert not run.anneal


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
