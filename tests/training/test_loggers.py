"""Loggers show what `metrics.jsonl` holds, go on after an interruption, and never stop training."""

import importlib
import json
import sys
import textwrap

import numpy as np
import pytest
import torch

from alewm.errors import InputError
from alewm.model.checkpoint_files import checkpoints_in
from alewm.training.checkpoint import load_world_model
from alewm.training.data import RunWindows
from alewm.training.metrics import Loggers
from alewm.training.trainer import Trainer
from memory_windows import MemoryWindows, draw_windows, run_config

CPU = torch.device("cpu")


def train(folder, *names, **options):
    config = run_config(keep_checkpoints=3, **options)
    source = MemoryWindows(draw_windows(80), config.training.batch_size)
    told = Loggers(names, folder, {"seed": config.training.seed})
    windows = RunWindows(source, [draw_windows(16, seed=5)])
    return Trainer(config, windows, folder=folder, device=CPU, loggers=told).run()


def lines(folder, kind):
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [record for record in records if record["kind"] == kind]


def interrupt_after(folder, step):
    """What a kill between two checkpoints leaves: metrics of later steps without their weights."""
    for checkpoint in checkpoints_in(folder / "checkpoints"):
        if int(checkpoint.name.removeprefix("step-")) > step:
            for path in checkpoint.iterdir():
                path.unlink()
            checkpoint.rmdir()


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"), size_guidance={"histograms": 0, "images": 0, "scalars": 0})
    found.Reload()
    return found


@pytest.mark.parametrize("saved_step", [4, 0])
def test_event_files_hold_the_metrics_without_repeated_steps_after_an_interruption(tmp_path, saved_step):
    folder = tmp_path / "run"
    train(folder, "tensorboard")
    interrupt_after(folder, saved_step)
    train(folder, "tensorboard")
    found = events(folder)
    for kind, name in (("train", "loss"), ("train", "q/4"), ("validation", "prediction"), ("latent", "effective_rank")):
        curve = [(event.step, event.value) for event in found.Scalars(f"{kind}/{name}")]
        assert curve == [(line["step"], pytest.approx(line[name])) for line in lines(folder, kind)]
        assert len({step for step, _ in curve}) == len(curve)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_loggers_change_no_weight(tmp_path, precision):
    weights = [
        load_world_model(train(tmp_path / name, *loggers, precision=precision).checkpoint)[0].state_dict()
        for name, loggers in (("plain", ()), ("shown", ("tensorboard",)))
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


CLIENT = """
    calls = []

    def init(**options):
        calls.append(("init", options))

    def log(values, step):
        calls.append(("log", step, values))

    def finish():
        calls.append(("finish",))
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A stand-in for a package that is not installed here, importable under its name."""

    def make(name, source):
        home = tmp_path / "packages"
        home.mkdir(exist_ok=True)
        (home / f"{name}.py").write_text(textwrap.dedent(source))
        monkeypatch.syspath_prepend(home)
        importlib.invalidate_caches()
        monkeypatch.setitem(sys.modules, name, None)  # so that it is gone again after the test
        del sys.modules[name]
        return importlib.import_module(name)

    return make


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_a_client_is_told_every_step_once(install, tmp_path, name):
    package = install(name, CLIENT)
    folder = tmp_path / "run"
    train(folder, name)
    interrupt_after(folder, 4)
    train(folder, name)
    begun = [call[1] for call in package.calls if call[0] == "init"]
    assert len(begun) == 2
    assert begun[0] == begun[1], "both belong to one run"
    assert begun[0]["name"].startswith("run-")
    assert begun[0]["config"] == {"seed": 3072}
    assert package.calls[-1] == ("finish",)
    losses = [(step, values["train/loss"]) for _, step, values in logged(package) if "train/loss" in values]
    assert losses == [(line["step"], line["loss"]) for line in lines(folder, "train")]


def logged(package):
    return [call for call in package.calls if call[0] == "log"]


def test_a_logger_added_later_is_told_what_follows(install, tmp_path):
    package = install("trackio", CLIENT)
    train(tmp_path / "run")
    interrupt_after(tmp_path / "run", 8)
    train(tmp_path / "run", "trackio")
    assert [step for _, step, values in logged(package) if "train/loss" in values] == [10, 12]


def test_a_finished_run_opens_no_logger(install, tmp_path):
    train(tmp_path / "run")
    package = install("wandb", CLIENT)
    train(tmp_path / "run", "wandb")
    assert package.calls == []


def test_a_failing_logger_is_reported_once_and_dropped_while_the_others_go_on(install, tmp_path, capsys):
    broken = install(
        "wandb", CLIENT.replace("step, values))", "step, values))\n        raise ConnectionError('no network')")
    )
    healthy = install("trackio", CLIENT)
    result = train(tmp_path / "run", "wandb", "trackio")
    assert result.step == 12
    said = capsys.readouterr().err
    assert said.count("logger wandb failed at step") == 1
    assert "(ConnectionError: no network). Training goes on" in said
    assert len(logged(broken)) == 3
    assert max(step for _, step, _ in logged(healthy)) == 12


def test_a_logger_that_fails_now_and_then_is_kept(install, tmp_path, capsys):
    package = install("trackio", CLIENT)
    tries = []

    def log(values, step):
        tries.append(step)
        if len(tries) % 2:
            raise OSError("busy")

    package.log = log
    train(tmp_path / "run", "trackio")
    assert tries[-1] == 12
    assert capsys.readouterr().err.count("logger trackio failed") == 1


def test_a_logger_that_cannot_start_or_end_does_not_stop_training(install, tmp_path, capsys):
    install("wandb", "def init(**options):\n    raise RuntimeError('log in first')\n")
    install("trackio", CLIENT.replace('calls.append(("finish",))', "raise RuntimeError('lost')"))
    assert train(tmp_path / "run", "wandb", "trackio").step == 12
    said = capsys.readouterr().err
    assert "logger wandb could not be started (RuntimeError: log in first); training goes on without it" in said
    assert "logger trackio failed while it was closed (RuntimeError: lost)" in said


def test_a_missing_package_and_an_unknown_name_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    with pytest.raises(InputError, match=r"--log wandb needs the package 'wandb'.*Install it: pip install wandb"):
        Loggers(["wandb"], tmp_path)
    with pytest.raises(InputError, match=r"Unknown logger 'tensorbord'. Did you mean 'tensorboard'"):
        Loggers(["tensorbord"], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_lists_of_numbers_stay_in_the_metrics_file(tmp_path):
    told = Loggers(["tensorboard"], tmp_path)
    told.open(0, 0)
    told.write(1, "kind", {"one": np.float32(2), "many": [1.0, 2.0]})
    told.close()
    assert events(tmp_path).Tags()["scalars"] == ["kind/one"]
    assert events(tmp_path).Tags()["histograms"] == []
