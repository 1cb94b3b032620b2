"""Grids, shares of machines, and what a sweep concludes from run folders."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from alewm.cli.flags import assigned_values
from alewm.errors import InputError
from alewm.sweeps.executors import LocalProcesses, _dealt
from alewm.sweeps.grid import DEGREE, GRIDS, MULTIPLIER, SEARCHED, WEIGHT, paper_sweep, preset_sweep
from alewm.sweeps.jobs import Job, JobResources
from alewm.sweeps.library import EvaluationWork, Library, TrainingRun
from alewm.sweeps.sweep import conclude, trial_works
from alewm.training.presets import SEEDS, SELECTED, preset
from alewm_lab.experiments.request import make_scale

VALIDATION = make_scale("paper").evaluation("validation")


def test_the_paper_s_grids_hold_every_row_it_selected():
    sweep = paper_sweep(SEEDS[:1], ["two-room"])
    assert [group.name for group in sweep.groups][:2] == ["two-room-96 lewm", "two-room-96 alewm"]
    keys = {run.key for run in sweep.runs}
    assert {TrainingRun("", preset(f"two-room-{width}")).key for width in (96, 192, 384)} <= keys
    assert {TrainingRun("", preset(f"two-room-384-lewm-{width}")).key for width in (8, 384)} <= keys
    # LeWM at up to 96 on ViT-Tiny serves the blocks of 96 and of 192, so that these runs are counted once.
    assert len(sweep.runs) == 3 * 72 + 4 * (8 + 11)
    for row in SELECTED.values():
        assert all(value in GRIDS[field] for field, value in zip((WEIGHT, MULTIPLIER, DEGREE), row, strict=True))


def test_only_keeps_tasks_widths_and_methods_and_one_value_is_for_all():
    sweep = paper_sweep([1, 2], ["cube", "96", "alewm"], {"training.num_steps": (100,)})
    (group,) = sweep.groups
    assert group.name == "cube-96 alewm"
    assert len(group.configurations) == 72
    assert {len(runs) for runs in group.configurations} == {2}
    assert {run.config.training.num_steps for run in sweep.runs} == {100}
    assert sweep.tasks == ("cube",)


@pytest.mark.parametrize("name", ["two-room-tiny", "cube-96-nested-dropout", "push-t-192-lewm-32"])
def test_without_values_a_preset_has_the_paper_s_grid_for_its_method(name):
    sweep = preset_sweep([name], [1])
    fields = SEARCHED[preset(name).objective.method]
    size = 1
    for field in fields:
        size *= len(GRIDS[field])
    assert len(sweep.runs) == size
    pinned = preset_sweep([name], [1], {WEIGHT: (0.5,)})
    assert len(pinned.runs) == size // len(GRIDS[WEIGHT])
    assert len(preset_sweep([name], [1, 2], {WEIGHT: (0.5, 0.6)}).runs) == 4


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=0.15,0.3", (0.15, 0.3)),
        ("a.b=[8, 16],[32]", ([8, 16], [32])),
        ("a.b=lewm,alewm", ("lewm", "alewm")),
        ("a.b=lewm,2", ("lewm", 2)),
        ("a.b=null", (None,)),
    ],
)
def test_values_are_parted_at_commas_outside_of_brackets(text, values):
    assert assigned_values([text]) == {"a.b": values}


def test_gpus_are_dealt_one_process_each_before_a_second():
    assert _dealt(2, JobResources()) == [0, 1]
    assert _dealt(2, JobResources(gpus=0.5)) == [0, 1, 0, 1]
    assert len(_dealt(1, JobResources(gpus=0.1))) == 10


def test_what_was_not_asked_for_follows_from_what_there_is():
    assert JobResources().completed("auto", 16.0, 2.0) == JobResources(8, 1.0)
    assert JobResources(gpus=0.5).completed("auto", 16.0, 2.0) == JobResources(4, 0.5)
    assert JobResources().completed("auto", 16.0, 0.0) == JobResources(1, 0.0)
    assert JobResources().completed("cpu", 16.0, 2.0) == JobResources(1, 0.0)
    assert JobResources(cpus=3).completed("auto", 16.0, 2.0) == JobResources(3, 1.0)


def test_a_trial_without_a_gpu_computes_on_the_cpu():
    assert JobResources(gpus=0.0).device("auto") == "cpu"
    assert JobResources().device("auto") == "auto"
    with pytest.raises(InputError, match="--device cuda needs a GPU"):
        JobResources(gpus=0.0).device("cuda")


def test_threads_are_what_was_asked_for_or_an_even_share():
    cpu = torch.device("cpu")
    assert LocalProcesses.sharing(3, cpu, JobResources(cpus=5)).num_threads == 5
    assert LocalProcesses.sharing(10_000, cpu, JobResources()).num_threads == 1


@dataclass(frozen=True)
class Note:
    """Work that writes what it was given."""

    run: TrainingRun

    def is_done(self, library):
        return (library.folder(self.run) / "note.json").exists()

    def perform(self, library, device, command=None):
        library.folder(self.run).mkdir(parents=True)
        told = {"command": command, "argv": sys.argv, "cwd": str(Path.cwd()), "data": str(library.data)}
        (library.folder(self.run) / "note.json").write_text(json.dumps(told))

    def command(self, library):
        return f"note {library.folder(self.run)}"


def test_a_job_finds_its_files_from_any_working_directory_and_its_command_is_as_typed(tmp_path, monkeypatch):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    run = TrainingRun("two-room-tiny", preset("two-room-tiny"))
    library = Library(Path("runs"), Path("data"))
    job = Job("note", (Note(run),), library.holding(run), "cpu", 1, home, Path("runs/logs"))
    monkeypatch.chdir(elsewhere)
    typed = list(sys.argv)
    assert job.perform() is None
    told = json.loads((home / "runs" / run.name / "note.json").read_text())
    assert told == {
        "command": f"note runs/{run.name}",
        "argv": typed,
        "cwd": str(elsewhere),
        "data": str(home / "data"),
    }
    assert told["command"] in (home / "runs/logs/note.1.log").read_text()
    assert not any(elsewhere.iterdir())


def finish(library, run, rate, capacity):
    """What training and an evaluation on validation pairs leave behind."""
    folder = library.folder(run)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"data": {"fingerprint": "same"}}))
    (folder / "result.json").write_text(json.dumps({"training": {"validation/loss": 1.0}}))
    found = {"evaluated": VALIDATION.identity(), "episodes": 100, "success_rate": rate, "mean_capacity": capacity}
    path = EvaluationWork(run, VALIDATION).folder(library) / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(found))


def test_the_best_complete_configuration_is_selected_and_the_rest_sorted(tmp_path):
    library = Library(tmp_path / "runs", tmp_path)
    library._fingerprints["two-room"] = "same"
    sweep = preset_sweep(["two-room-192"], [1, 2], {WEIGHT: (0.09, 0.15, 0.3)})
    first, second, third = sweep.groups[0].configurations
    for run, rate, capacity in zip((*first, *second), (0.5, 0.9, 0.9, 0.7), (8.0, 8.0, 16.0, 16.0), strict=True):
        finish(library, run, rate, capacity)
    finish(library, third[0], 1.0, 8.0)  # the best, but its other seed failed
    outcome = conclude(sweep, library, VALIDATION, {third[1].name: "it was ill"})
    rows = [[cell.text for cell in row] for row in outcome.configurations.rows]
    assert [(row[1], row[2].split()[0], row[-1]) for row in rows] == [
        ("0.15", "80.00", "selected"),
        ("0.09", "70.00", ""),
        ("0.3", "incomplete", ""),
    ]
    assert [row[3].text for row in outcome.trials.rows] == ["100.00", "90.00", "90.00", "70.00", "50.00", ""]
    assert outcome.trials.rows[-1][-2].text == "failed"
    (finding,) = outcome.findings
    assert finding.startswith("two-room-192: selected regularizer_weight=0.15 (80.00 ± 10.00 % of validation pairs")
    page = outcome.write(tmp_path / "out", sweep, library).read_text()
    assert f"- {third[1].name} failed: it was ill" in page
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"sweep.md", "sweep.json", "trials.csv"}


def test_a_sweep_refuses_test_pairs():
    run, *_ = preset_sweep(["two-room-192"], [1], {WEIGHT: (0.09,)}).runs
    with pytest.raises(AssertionError, match="validation pairs only"):
        trial_works(run, make_scale("paper").evaluation("test"))
