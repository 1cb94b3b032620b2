"""BatchNorm's moments measured anew: exact means over the batches, and nothing else changes."""

import dataclasses
from pathlib import Path

import pytest
import torch

from alewm.config import to_dict
from alewm.errors import InputError
from alewm.model.world_model import BatchNorm, WorldModel, build_world_model
from alewm.training.checkpoint import load_world_model
from alewm.training.data import RunWindows
from alewm.training.objective import Objective
from alewm.training.random_streams import RandomStreams
from alewm.training.trainer import Trainer, TrainingResult
from alewm.training.validation import recalibrate
from memory_windows import MODEL, MemoryWindows, draw_windows, run_config

CPU = torch.device("cpu")


def recalibrated(model: WorldModel, batches: list) -> WorldModel:
    config = run_config()
    recalibrate(model, Objective(config.objective, config.model), batches, RandomStreams(0, CPU))
    return model


def fresh_model() -> WorldModel:
    return build_world_model(MODEL, torch.Generator().manual_seed(0)).eval()


def projected_features(model: WorldModel, windows) -> torch.Tensor:
    hidden = []
    hook = model.projector.norm.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
    with torch.no_grad():
        model.encode(windows.pixels)
    hook.remove()
    return hidden[0]


class StoppedError(Exception):
    """Raised by the test in the middle of a run."""


def trained(folder: Path, num_batches: int, interrupted_at: int | None = None) -> TrainingResult:
    config = run_config(recalibration_batches=num_batches)

    def interrupt(step: int, _) -> None:
        if step == interrupted_at:
            raise StoppedError

    windows = draw_windows(80)
    read = RunWindows(
        MemoryWindows(windows, 16),
        validation=[draw_windows(16, seed=5)],
        recalibration=[windows.rows(16 * i, 16 * i + 16) for i in range(num_batches)],
    )
    return Trainer(config, read, folder=folder, device=CPU).run(interrupt)


def test_moments_are_the_means_over_the_batches_whatever_they_were():
    model, batches = fresh_model(), [draw_windows(16, seed=seed) for seed in (1, 2, 3)]
    seen = [projected_features(model, batch) for batch in batches]
    model.projector.norm.running_mean.fill_(100.0)
    recalibrated(model, batches)
    norm = model.projector.norm
    torch.testing.assert_close(norm.running_mean, torch.stack([x.mean(0) for x in seen]).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([x.var(0) for x in seen]).mean(0))
    assert {module.momentum for module in model.modules() if isinstance(module, BatchNorm)} == {0.1}
    assert not model.training


def test_moments_of_predictions_are_those_of_sampled_capacities():
    sampled, whole = fresh_model(), fresh_model()
    recalibrated(sampled, [draw_windows(64)])
    whole.train()
    with torch.no_grad():
        for norm in (whole.projector.norm, whole.prediction_projector.norm):
            norm.momentum = 1.0
        whole.predict(whole.encode(draw_windows(64).pixels).latents[:, :-1], draw_windows(64).actions)
    assert torch.equal(sampled.projector.norm.running_mean, whole.projector.norm.running_mean)
    assert not torch.allclose(
        sampled.prediction_projector.norm.running_mean, whole.prediction_projector.norm.running_mean
    )


def test_without_batches_nothing_changes():
    assert all(
        map(torch.equal, recalibrated(fresh_model(), []).state_dict().values(), fresh_model().state_dict().values())
    )


def test_training_ends_with_the_same_weights_and_other_moments(tmp_path):
    plain, anew = (
        load_world_model(trained(tmp_path / str(count), count).checkpoint)[0].state_dict() for count in (0, 3)
    )
    differing = {name for name in plain if not torch.equal(plain[name], anew[name])}
    assert differing
    assert all(name.rsplit(".", 1)[1] in ("running_mean", "running_var", "num_batches_tracked") for name in differing)


def test_a_run_that_goes_on_ends_as_one_that_was_not_interrupted(tmp_path):
    whole = trained(tmp_path / "whole", 2)
    with pytest.raises(StoppedError):
        trained(tmp_path / "parts", 2, interrupted_at=10)
    parts = trained(tmp_path / "parts", 2)
    ends = [load_world_model(result.checkpoint)[0].state_dict() for result in (whole, parts)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_the_field_is_checked_and_not_written_where_it_is_zero():
    assert "recalibration_batches" not in to_dict(run_config())["training"]
    assert to_dict(run_config(recalibration_batches=2))["training"]["recalibration_batches"] == 2
    with pytest.raises(InputError, match="recalibration_batches must not be negative, got -1"):
        dataclasses.replace(run_config().training, recalibration_batches=-1)
