"""`alewm-lab oscillator` end to end: its files, its resumption, and what it says when something is wrong."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest

from alewm_lab.cli import experiment as verb
from alewm_lab.oscillator import study

SMALL = ("oscillator", "--epochs", 1, "--seeds", 0, "--jobs", 1)
KEYS = {
    "method",
    "control",
    "latent_dim",
    "seed",
    "lambda",
    "alpha",
    "r2_by_prefix",
    "effective_rank",
    "masked_variance",
    "prior_survival",
    "mean_q",
    "seconds",
}


ONE_MODEL = (*SMALL, "--methods", "alewm", "--out", "study")


@pytest.fixture(scope="module")
def finished_study(tmp_path_factory):
    """One small finished study, trained once; tests damage copies of it."""
    folder = tmp_path_factory.mktemp("finished")
    subprocess.run(
        [sys.executable, "-m", "alewm_lab", *map(str, ONE_MODEL)], cwd=folder, check=True, capture_output=True
    )
    return folder / "study"


@pytest.fixture
def study_copy(finished_study, tmp_path):
    return Path(shutil.copytree(finished_study, tmp_path / "study"))


def test_the_default_study_writes_result_table_and_figure(alewm, tmp_path):
    done = alewm(*SMALL, "--out", "study")
    assert done.stdout.strip().splitlines()[-1] == "study/result.json"
    result = json.loads((tmp_path / "study/result.json").read_text())
    assert [(run["method"], run["latent_dim"]) for run in result["runs"]] == [
        ("lewm", 4),
        ("lewm", 6),
        ("lewm", 8),
        ("alewm", 8),
        ("alewm", 8),
    ]
    for run in result["runs"]:
        assert run.keys() >= KEYS
        assert len(run["r2_by_prefix"]) == run["latent_dim"]
    assert "| ALeWM, paper's way |" in (tmp_path / "study/table.md").read_text()
    assert (tmp_path / "study/figure.png").stat().st_size > 10_000
    assert (tmp_path / "study/figure.svg").read_text().lstrip().startswith("<?xml")
    names = {path.stem for path in (tmp_path / "study/checkpoints").iterdir()}
    assert names == {run["name"] for run in result["runs"]}


@pytest.mark.slow
def test_controls_and_two_processes(alewm, tmp_path):
    """Every control runs, and how many processes share the work changes nothing but the time."""
    methods = ("prior-frozen", "marginal", "alewm-sigreg", "nested-dropout")
    alewm("oscillator", "--epochs", 1, "--seeds", 0, "--methods", *methods, "--jobs", 2, "--out", "two")
    alewm("oscillator", "--epochs", 1, "--seeds", 0, "--methods", *methods, "--jobs", 1, "--out", "one")
    two, one = (json.loads((tmp_path / name / "result.json").read_text())["runs"] for name in ("two", "one"))
    assert [(run["method"], run["control"]) for run in two] == [
        ("alewm", "prior-frozen"),
        ("alewm", "marginal"),
        ("alewm-sigreg", "none"),
        ("nested-dropout", "none"),
    ]
    for a, b in zip(two, one, strict=True):
        assert a["r2_by_prefix"] == b["r2_by_prefix"]


def test_repeating_the_command_repeats_no_training(alewm, study_copy):
    records = list((study_copy / "records").iterdir())
    stamps = [path.stat().st_mtime_ns for path in records]
    alewm(*ONE_MODEL)
    assert [path.stat().st_mtime_ns for path in records] == stamps


@pytest.mark.slow
def test_killed_and_repeated_it_ends_as_if_never_killed(alewm, tmp_path):
    arguments = ["oscillator", "--epochs", "2", "--seeds", "0", "--methods", "alewm", "lewm", "--jobs", "1", "--out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "alewm_lab", *arguments, "killed"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed").glob("records/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list((tmp_path / "killed").glob("records/*.json"))
    assert not (tmp_path / "killed/result.json").exists()
    alewm(*arguments, "killed")
    alewm(*arguments, "whole")
    killed, whole = (json.loads((tmp_path / name / "result.json").read_text())["runs"] for name in ("killed", "whole"))
    for a, b in zip(killed, whole, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


def test_another_configuration_in_the_same_folder_is_refused(alewm, study_copy):
    before = (study_copy / "result.json").read_bytes()
    done = alewm(*ONE_MODEL, "--epochs", 2, check=False)
    assert done.returncode == 2
    assert "holds a run with another configuration" in done.stderr
    assert "Traceback" not in done.stderr
    assert (study_copy / "result.json").read_bytes() == before


@pytest.mark.parametrize("content", ['{"runs": [', "[]", '{"runs": 3}'])
def test_a_damaged_result_is_reported_and_left_alone(alewm, study_copy, content):
    (study_copy / "result.json").write_text(content)
    done = alewm(*ONE_MODEL, check=False)
    assert done.returncode == 2
    assert "result.json is damaged" in done.stderr
    assert "Traceback" not in done.stderr
    assert (study_copy / "result.json").read_text() == content


def test_a_damaged_record_is_named(alewm, study_copy):
    record = next((study_copy / "records").iterdir())
    record.write_text(record.read_text().replace('"reg_weight": 0.01', '"reg_weight": 0.02'))
    done = alewm(*ONE_MODEL, check=False)
    assert done.returncode == 2
    assert f"{record.name} does not describe the run" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("oscillator", "--epochs", "0"), "alewm-lab: epochs must be positive, got 0.\n"),
        (("oscillator", "--seeds", "1", "1"), "Seeds must be distinct"),
        (("oscillator", "--sweep", "--seeds", "1", "1"), "Seeds must be distinct"),
        (("oscillator", "--jobs", "-1"), "--jobs is a number of processes"),
        (("oscillator", "--methods", "alewn"), "alewn"),
        (("oscillator", "--epoch", "3"), "--epochs"),
    ],
)
def test_wrong_arguments_get_a_message_and_a_status(alewm, tmp_path, arguments, message):
    done = alewm(*arguments, check=False)
    assert done.returncode == 2
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_help_is_complete(alewm):
    text = alewm("oscillator", "--help").stdout
    for flag in ("--out", "--seeds", "--epochs", "--methods", "--jobs", "--sweep"):
        assert flag in text
    assert alewm("--version").stdout.startswith("alewm 0.")


def test_the_verb_s_choices_are_the_study_s():
    assert get_args(verb._Variant) == get_args(study.Variant)
    assert verb.Oscillator().methods == study.DEFAULT_VARIANTS


def test_bench_ends_in_a_line_of_json(alewm):
    lines = alewm("bench", "regularizer", "--batch", 16, "--repeats", 2).stdout.strip().splitlines()
    measured = json.loads(lines[-1])
    assert {"reference", "recurrence"} <= measured["paths"].keys()
    for path in measured["paths"].values():
        assert path["gradient_error"] < 1e-4
