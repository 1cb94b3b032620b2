"""A finished run that is asked for with more updates goes on by a new schedule, and says so."""

import json
from contextlib import contextmanager

import pytest

import alewm
from alewm.errors import InputError
from alewm.runs.folder import read_metrics
from alewm.training.config import TrainingConfig
from alewm.training.trainer import Trainer

SMALL = {
    "batch_size": 8,
    "device": "cpu",
    "log_every": 1,
    "checkpoint_every": 4,
    "set": {"training.validation_batches": 1, "objective.num_projections": 16, "training.optim.selector_delay": 0.5},
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    out = tmp_path_factory.mktemp("extension") / "episodes.h5"
    with alewm.collect("two-room", out, episodes=16, image_size=28, jobs=1) as store:
        return store.path


def learning_rates(run):
    return [entry["learning_rate"] for entry in read_metrics(run / "metrics.jsonl") if entry["kind"] == "train"]


def test_a_finished_run_goes_on_with_a_new_schedule(path, tmp_path, capsys):
    run = tmp_path / "run"
    first = alewm.train("two-room-tiny", path, run, steps=8, **SMALL)
    alewm.evaluate(first, episodes=1, candidates=8, iterations=1, device="cpu", animations=0, out=run)
    before = (run / "result.json").read_bytes()
    capsys.readouterr()

    extended = alewm.train("two-room-tiny", path, run, steps=14, **SMALL)
    said = capsys.readouterr().err
    assert "was finished after 8 updates and is extended to 14, by a new schedule" in said
    assert extended.description.step == 14
    assert json.loads((run / "config.json").read_text())["training"]["schedules"] == [8]
    assert (run / "schedules/step-00000008/result.json").read_bytes() == before
    assert "success_rate" not in json.loads((run / "result.json").read_text())
    rates = learning_rates(run)
    assert len(rates) == 14
    assert rates[7] < rates[8]  # it had decayed, and rises again
    assert rates[8:] == learning_rates(alewm.train("two-room-tiny", path, tmp_path / "six", steps=6, **SMALL).path)

    again = alewm.train("two-room-tiny", path, run, steps=14, **SMALL)  # a finished run, asked for again
    assert again.description.step == 14
    assert "extended" not in capsys.readouterr().err
    third = alewm.train("two-room-tiny", path, run, steps=16, **SMALL)
    assert third.description.config.training.schedules == (8, 14)
    assert len(json.loads((run / "provenance.json").read_text())["extensions"]) == 2


def test_an_extension_that_was_interrupted_ends_with_the_same_weights(path, tmp_path, monkeypatch):
    weights = []
    for name in ("whole", "interrupted"):
        run = tmp_path / name
        alewm.train("two-room-tiny", path, run, steps=4, **SMALL)
        if name == "interrupted":
            with interrupted_before_update(monkeypatch, 10):
                alewm.train("two-room-tiny", path, run, steps=12, **SMALL)
            assert not (run / "result.json").exists()
        weights.append(alewm.train("two-room-tiny", path, run, steps=12, **SMALL).checkpoint / "model.safetensors")
    assert weights[0].read_bytes() == weights[1].read_bytes()


@contextmanager
def interrupted_before_update(monkeypatch, number):
    """Have training in the block interrupted, as by Ctrl-C, when it comes to update `number`."""
    advance = Trainer._advance

    def interrupted(self, *arguments):
        if self.step == number:
            raise KeyboardInterrupt
        advance(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield


def test_an_unfinished_run_is_not_extended(path, tmp_path, monkeypatch):
    with interrupted_before_update(monkeypatch, 6):
        alewm.train("two-room-tiny", path, tmp_path / "run", steps=8, **SMALL)
    with pytest.raises(InputError, match=r"num_steps: asked 12, found 8(.|\n)*has not finished"):
        alewm.train("two-room-tiny", path, tmp_path / "run", steps=12, **SMALL)


def test_fewer_updates_and_other_settings_are_refused_as_ever(path, tmp_path):
    alewm.train("two-room-tiny", path, tmp_path / "run", steps=4, **SMALL)
    with pytest.raises(InputError, match="num_steps: asked 3, found 4"):
        alewm.train("two-room-tiny", path, tmp_path / "run", steps=3, **SMALL)
    with pytest.raises(InputError, match="seed: asked 1, found 3072"):
        alewm.train("two-room-tiny", path, tmp_path / "run", steps=8, seed=1, **SMALL)


@pytest.mark.parametrize("schedules", [(8, 8), (9, 8), (20,), (0,)])
def test_schedules_end_apply_blocks(schedules):
    with pytest.raises(InputError, match="end one after the other"):
        TrainingConfig(num_steps=20, schedules=schedules)
