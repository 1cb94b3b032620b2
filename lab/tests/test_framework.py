"""Runs are found again, scales never meet, work is done once, and commands repeat what was done."""

import json
import shlex
import shutil
from dataclasses import replace

import pytest
import torch
import tyro
from matplotlib.figure import Figure

from alewm.cli.train import Train
from alewm.config import overridden, to_dict
from alewm.demo import SCALES
from alewm.envs.collect_task import collect_task
from alewm.errors import InputError
from alewm.sweeps.grid import WEIGHT
from alewm.sweeps.library import Library, NotThereYetError, TrainingWork
from alewm.sweeps.sweep import select_configuration
from alewm.tables import Table
from alewm.training.presets import SEEDS, preset
from alewm.workers import num_available_cores
from alewm_lab.experiments.experiment import Animation, Experiment, ExperimentFigure, Outcome, Results
from alewm_lab.experiments.framework import RECIPES, chains, data_notes, execute, planned, recipe
from alewm_lab.experiments.request import Request, make_scale
from smoke_runs import CPU, perform, write_result

PAPER = Request(make_scale("paper"), SEEDS)


def configured_by(command):
    """The configuration that the command line of `alewm train` makes of a command."""
    words = shlex.split(command)
    assert words[:2] == ["alewm", "train"]
    asked = tyro.cli(Train, args=words[2:])
    return asked._configured(preset(asked.preset), None)


@pytest.mark.parametrize(
    ("scale", "searches"),
    [("smoke", False), ("tiny", False), ("short", False), ("long", False), ("paper", False), ("paper", True)],
)
def test_the_command_of_a_run_makes_its_configuration(scale, searches, tmp_path):
    rate = 2e-4 if scale in ("short", "long") else None
    request = Request(make_scale(scale, learning_rate=rate), SEEDS[:1], searches=searches)
    library = Library(tmp_path, tmp_path)
    for name, each in RECIPES.items():
        if name in ("mixed", "reacher-capacity") and scale == "tiny":
            continue  # refused: it has one task
        runs = each.build(request).runs
        for run in runs[:: max(1, len(runs) // 3)]:
            assert to_dict(configured_by(library.command(run))) == to_dict(run.config)


def test_a_lewm_width_serves_two_blocks_and_is_trained_once():
    experiment = recipe("main-table").build(PAPER)
    names = [run.key for run in experiment.runs]
    assert len(names) == len(set(names))
    # ViT-Tiny: eight widths serve the blocks of 96 and 192; ViT-Small: eleven; ALeWM: one per block.
    assert len(experiment.runs) == 4 * 3 * (8 + 11 + 3)


def test_two_presets_of_one_configuration_share_a_folder(tmp_path):
    library = Library(tmp_path, tmp_path)
    narrow, wide = (PAPER.lewm("two-room", width, 32, 3072) for width in (96, 192))
    assert narrow.name != wide.name
    assert library.folder(wide) == library.folder(narrow) == tmp_path / wide.name


def test_lewm_s_widths_can_be_limited_and_the_full_one_stays():
    for limit, widths in (((192,), [192]), ((32,), [32, 192])):
        request = Request(make_scale("short", 4500), SEEDS[:1], ("push-t", "192"), lewm_widths=limit)
        runs = recipe("rollouts").build(request).runs
        assert [run.config.model.latent_dim for run in runs if run.config.objective.method == "lewm"] == widths
        assert f"LeWM's best width is among {limit[0]} and the full one." in request.caption("Text.")
    with pytest.raises(InputError, match="Unknown width of LeWM in the block of 192 '31'"):
        Request(make_scale("short"), SEEDS, lewm_widths=(31,)).widths_of_lewm(192)


def test_budgets_cannot_be_mixed():
    runs = [Request(make_scale(scale), SEEDS).alewm("two-room", 192, 3072) for scale in ("short", "paper")]
    with pytest.raises(AssertionError, match="mix budgets"):
        Experiment("mixed-up", PAPER, tuple(runs), lambda _: Outcome())


def test_captions_name_data_that_published_numbers_are_not_about(tmp_path):
    library = Library(tmp_path, tmp_path)
    for task in ("push-t", "two-room"):
        collect_task(task, library.data_path(task), num_episodes=1, seed=0, image_size=28, max_steps=1, jobs=1)
    assert data_notes(library, {"two-room"}) == ""
    note = data_notes(library, {"two-room", "push-t"})
    assert note.startswith("Push-T: Data of our own expert")
    table, drawing = Table.of("t", "A table.", ["a"], [["1"]]), ExperimentFigure("d", "A figure.", lambda _: Figure())
    noted = Outcome((table,), (drawing,), (Animation("f", "A film.", b""),)).noting(note)
    assert [each.caption for each in (*noted.tables, *noted.drawings, *noted.films)] == [
        f"A {what}. {note}" for what in ("table", "figure", "film")
    ]


def test_parts_of_an_experiment_have_folders_of_their_own():
    scale = make_scale("short", 4500)
    folders = [Request(scale, SEEDS, only).folder for only in ((), ("push-t", "192"), ("reacher", "192"))]
    assert folders == ["short-4500", "short-4500-push-t-192", "short-4500-reacher-192"]


def test_captions_name_the_scale_and_the_seeds():
    short = Request(make_scale("short", 500), (1, 2))
    assert short.caption("Success.") == (
        "Success. Scale short: 500 updates per model where the paper has ten epochs. Seeds 1, 2."
    )
    steep = Request(make_scale("short", 500, 2e-4), (1,))
    assert "500 updates per model with a learning rate of 2e-4 where" in steep.caption("")
    assert steep.alewm("two-room", 192, 1).config.training.optim.learning_rate == 2e-4
    assert steep.lewm("two-room", 192, 32, 1).config.training.optim.learning_rate == 2e-4
    assert steep.folder != short.folder
    long = Request(make_scale("long", learning_rate=2e-4), (1,))
    assert "12,000 updates per model with a learning rate of 2e-4. Updates times learning rate is 2.4;" in long.caption(
        ""
    )
    assert long.command("goal-cost") == "alewm-lab experiment goal-cost --scale long --short-rate 2e-4"
    assert long.folder == "long-2e-4"
    assert "ten epochs" in PAPER.caption("")
    assert make_scale("short", 500).folder != make_scale("short").folder


def test_the_tiny_scale_is_the_demonstration_s_preset_and_data_on_a_hundred_pairs():
    scale = make_scale("tiny")
    demo = SCALES["full"]
    request = Request(scale, SEEDS)
    (width,) = request.widths(96, 192, 384)
    assert request.tasks("push-t", "cube") == ("two-room",)
    for seed in SEEDS:
        assert request.alewm("two-room", width, seed).config == demo.configs(seed)["alewm"]
        assert request.lewm("two-room", width, width, seed).config == demo.configs(seed)["lewm"]
    assert (scale.own_data.num_episodes, scale.num_pairs) == (demo.num_episodes, demo.num_pairs)
    assert request.support(width) == preset("two-room-tiny").model.capacities
    assert (scale.evaluation().num_episodes, scale.evaluation("validation").num_episodes) == (100, None)
    assert "3,300 updates" in request.caption("")
    assert "mean nothing" not in request.caption("")
    for name in ("mixed", "reacher-capacity"):
        with pytest.raises(InputError, match=f"{name} is .* the scale tiny has Two-Room alone"):
            recipe(name).build(request)


def test_only_names_tasks_and_widths_of_the_experiment():
    some = Request(PAPER.scale, SEEDS, only=("cube", "96", "384"))
    assert some.tasks("push-t", "cube") == ("cube",)
    assert some.widths(96, 192, 384) == (96, 384)
    assert PAPER.tasks("push-t", "cube") == ("push-t", "cube")
    with pytest.raises(InputError, match=r"Unknown task or width 'cubes'\. Did you mean 'cube'"):
        Request(PAPER.scale, SEEDS, only=("cubes",)).tasks("push-t", "cube")
    with pytest.raises(InputError, match="part of this experiment 'reacher'"):
        Request(PAPER.scale, SEEDS, only=("reacher",)).tasks("push-t", "cube")


@pytest.mark.parametrize(
    ("outcomes", "winner"),
    [
        (((0.9, 64, 0.3), (0.8, 8, 0.09)), 0),
        (((0.9, 64, 0.09), (0.9, 8, 0.3)), 1),
        (((0.9, 8, 0.3), (0.9, 8, 0.09)), 1),
        # 0.1 + 0.2 and 0.15 + 0.15 differ in floating point, but are as many successes.
        ((((0.1, 0.2), 8, 0.3), ((0.15, 0.15), 8, 0.09)), 1),
        # 0.29 times 100 is a little less than 29, which is more than 28.
        (((0.29, 64, 0.3), (0.28, 8, 0.09)), 0),
    ],
)
def test_ties_go_to_the_smaller_capacity_then_to_the_smaller_weight(outcomes, winner, tmp_path):
    library, validation = Library(tmp_path, tmp_path), PAPER.scale.evaluation("validation")
    candidates = []
    for number, (rates, capacity, weight) in enumerate(outcomes):
        # The degree only tells candidates of equal weight apart.
        changes = {WEIGHT: weight, "model.prior_degree": float(number)}
        runs = tuple(PAPER.alewm("two-room", 192, seed, changes) for seed in SEEDS[:2])
        for index, run in enumerate(runs):
            rate = rates[index] if isinstance(rates, tuple) else rates
            write_result(library, run, validation, success_rate=rate, mean_capacity=capacity)
        candidates.append(runs)
    for order in (candidates, candidates[::-1]):
        assert select_configuration(order, library, validation) is candidates[winner]


def test_selection_refuses_test_pairs_and_waits_for_all_results(tmp_path):
    candidates = [(PAPER.lewm("two-room", 192, width, 3072),) for width in (8, 16)]
    library = Library(tmp_path, tmp_path)
    with pytest.raises(AssertionError, match="validation pairs only"):
        select_configuration(candidates, library, PAPER.scale.evaluation("test"))
    with pytest.raises(NotThereYetError, match="has not been evaluated"):
        select_configuration(candidates, library, PAPER.scale.evaluation("validation"))


def test_a_dry_run_prints_commands_counts_and_hours_and_writes_nothing(tmp_path):
    request = Request(make_scale("paper"), SEEDS, only=("two-room", "192"))
    experiment = recipe("main-table").build(request)
    lines = list(planned(experiment, Library(tmp_path / "runs", tmp_path / "data"), updates_per_second=10.0))
    assert sum(line.startswith("alewm train ") for line in lines) == 3 * 9
    assert sum(line.startswith("alewm evaluate ") for line in lines) == 3 * 8
    assert any("planning to test pairs: at most 9" in line for line in lines)
    text = "\n".join(lines)
    assert "# 27 runs, 0 of them finished" in text
    # 27 runs of ten epochs of 730,809 windows in batches of 128; 24 validations of 100 pairs and 9 tests of 200.
    hours = 27 * 10 * (730_809 // 128) / 10 / 3600, (24 * 100 + 9 * 200) / 200 * 2.43 / 3600
    assert f"about {hours[0]:.1f} hours of training and {hours[1]:.1f} of evaluation" in text
    assert "encoder width 192: 100.0 ms per update, as given" in text
    assert not any(tmp_path.iterdir())


def test_missing_data_is_asked_for_with_the_command_that_records_it(tmp_path):
    experiment = recipe("prefix-sweep").build(PAPER)
    with pytest.raises(InputError, match=r"alewm collect cube --out .*cube\.h5"):
        execute(experiment, Library(tmp_path, tmp_path), jobs=1, device=CPU)


def test_finished_runs_are_reused_under_whatever_name(library, tmp_path):
    experiment, _ = perform("capacity-dynamics", library)
    (run,) = experiment.runs
    mine = shutil.copytree(library.folder(run), tmp_path / "runs/my-own-name")
    others = Library(tmp_path / "runs", library.data)
    assert others.folder(run) == mine
    before = {path: path.stat().st_mtime_ns for path in mine.rglob("*")}
    execute(experiment, others, jobs=1, device=CPU)
    assert {path: path.stat().st_mtime_ns for path in mine.rglob("*")} == before
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["my-own-name"]


def changed(run, fields):
    return replace(run, config=overridden(run.config, fields))


def test_a_run_watched_at_other_intervals_has_the_same_weights_and_is_reused(library, tmp_path):
    experiment, _ = perform("capacity-dynamics", library)
    (run,) = experiment.runs
    often = changed(run, {"training.validate_every": 2, "training.checkpoint_every": 3, "training.log_every": 2})
    others = Library(tmp_path / "runs", library.data)
    TrainingWork(often, num_threads=1).perform(others, CPU)
    weights = [
        next(folder.glob("checkpoints/*6/model.safetensors")) for folder in (library.folder(run), others.folder(often))
    ]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    found = Library(tmp_path / "runs", library.data)
    assert found.folder(run) == others.folder(often)
    assert found.is_trained(run)
    unfinished = Library(tmp_path / "runs", library.data)
    (others.folder(often) / "result.json").unlink()
    assert unfinished.folder(run) != others.folder(often)
    assert unfinished.folder(changed(run, {"training.seed": 1})) != others.folder(often)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_model_is_evaluated_before_the_next_one_is_trained(jobs, library, tmp_path):
    """So whoever is stopped amid an experiment has results; here the third of three models cannot be trained."""
    scale = make_scale("smoke")
    experiment = RECIPES["goal-cost"].build(Request(scale, SEEDS))
    elsewhere = Library(tmp_path, library.data)
    last = elsewhere.folder(experiment.runs[-1])
    last.mkdir()
    (last / "notes.txt").write_text("somebody's")
    with pytest.raises(InputError, match=r"notes\.txt|not empty"):
        execute(experiment, elsewhere, jobs=jobs, device=CPU)
    results = Results(elsewhere)
    for run in experiment.runs[:2]:
        for cost in ("active", "full"):
            assert results.evaluation(run, scale.evaluation(goal_cost=cost))["episodes"] == 4


def test_what_depends_on_other_models_waits_for_them(library, tmp_path):
    """Selection needs all validations; these follow each training."""
    experiment = RECIPES["sigreg-ablation"].build(Request(make_scale("smoke"), SEEDS[:1]))
    found = chains(experiment, Results(Library(tmp_path, library.data)))
    assert len(found) == len(experiment.runs)
    assert all(isinstance(chain[0], TrainingWork) for chain in found)
    validated = [chain for chain in found if len(chain) > 1]
    assert len(validated) == 2  # two weights of SIGReg; MixSIGReg has one and needs no selection
    assert all([work.settings.split for work in chain[1:]] == ["validation"] for chain in validated)


def test_a_run_of_other_data_is_not_reused(library, tmp_path):
    experiment, _ = perform("capacity-dynamics", library)
    (run,) = experiment.runs
    copy = shutil.copytree(library.folder(run), tmp_path / run.name)
    config = json.loads((copy / "config.json").read_text())
    config["data"]["fingerprint"] = "another"
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="was trained on data with fingerprint another"):
        Library(tmp_path, library.data).is_trained(run)


@pytest.mark.slow
def test_several_processes_do_what_one_does(library, tmp_path):
    """And continue what was begun: one of three runs is there already."""
    experiment = RECIPES["capacity-dynamics"].build(Request(make_scale("smoke"), SEEDS))
    elsewhere = Library(tmp_path, library.data)
    TrainingWork(experiment.runs[0]).perform(elsewhere, CPU)
    before = (elsewhere.folder(experiment.runs[0]) / "result.json").stat().st_mtime_ns
    execute(experiment, elsewhere, jobs=2, device=CPU)
    assert (elsewhere.folder(experiment.runs[0]) / "result.json").stat().st_mtime_ns == before
    run, alone = experiment.runs[1], Library(tmp_path / "alone", library.data)
    num_threads = torch.get_num_threads()
    # As many as each of the two processes has: other numbers of threads round sums otherwise.
    torch.set_num_threads(max(1, num_available_cores() // 2))
    try:
        TrainingWork(run).perform(alone, CPU)
    finally:
        torch.set_num_threads(num_threads)
    losses = [[entry["loss"] for entry in Results(each).metrics(run, "train")] for each in (elsewhere, alone)]
    assert len(losses[0]) == 6
    assert losses[0] == losses[1]


def test_the_main_table_of_the_paper_s_scale_from_stored_results(tmp_path):
    """Widths 16 and 32 are best on validation pairs, and the smaller wins; nothing else but d_max is tested."""
    library = Library(tmp_path, tmp_path)
    results, experiment = Results(library), recipe("main-table").build(PAPER)
    tested = []
    for works in (lambda _: experiment.works, experiment.tests):
        for work in works(results):
            model = work.run.config.model
            capacity = 16 if model.has_selector else model.latent_dim
            write_result(
                library,
                work.run,
                work.settings,
                success_rate=0.9 if capacity in (16, 32) else 0.8,
                mean_capacity=capacity,
                capacity_counts={str(capacity): 100},
            )
            tested += [capacity] if work.settings.split == "test" else []
    assert set(tested) == {16, 96, 192, 384}
    assert len(tested) <= experiment.num_tests
    outcome = experiment.outcome(results)
    rows = [[cell.text for cell in row] for row in outcome.tables[0].rows]
    assert [row[:2] for row in rows[3:6]] == [
        ["ViT-Tiny (192)", "LeWM (best d)"],
        ["ViT-Tiny (192)", "LeWM (d = 192)"],
        ["ViT-Tiny (192)", "ALeWM"],
    ]
    assert rows[3][2:4] == ["90.00 ± 0.00", "16.00 ± 0.00"]
    assert rows[4][2:4] == ["80.00 ± 0.00", "192.00 ± 0.00"]
    assert "in 12 of 12 comparisons and the smaller capacity in 12." in outcome.findings[1]
