"""A look at held-out windows: the losses of the model as it is used, and the run goes on as if nobody had looked."""

import pytest
import torch

from alewm.model.world_model import build_world_model
from alewm.training.checkpoint import load_world_model
from alewm.training.data import RunWindows
from alewm.training.objective import Objective
from alewm.training.random_streams import RandomStreams
from alewm.training.trainer import Trainer
from alewm.training.validation import validate
from memory_windows import MODEL, MemoryWindows, draw_windows, run_config

CPU = torch.device("cpu")


def test_losses_are_means_over_batches_with_running_moments_and_without_dropout():
    generator = torch.Generator().manual_seed(0)
    model = build_world_model(MODEL, generator)
    for parameter in model.parameters():  # opens the gates, behind which nothing is dropped
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    objective = Objective(run_config().objective, MODEL)
    batches = [draw_windows(16, seed=5), draw_windows(16, seed=6)]
    found = validate(model.train(), objective, batches, RandomStreams(3, CPU))
    assert model.training
    streams, expected = RandomStreams(3, CPU), []
    for batch in batches:
        noise = streams.draw_step(model, 16, 3, drops=False)
        expected.append(objective(model.eval(), *batch, noise, streams.directions).terms)
    for name in ("prediction", "regularizer"):
        assert found[name] == pytest.approx(float(sum(terms[name] for terms in expected)) / 2)


def test_looking_changes_no_weight(tmp_path):
    ends = []
    for name, validation in (("looked at", [draw_windows(16, seed=5)]), ("left alone", ())):
        windows = RunWindows(MemoryWindows(draw_windows(80), 16), validation)
        run = Trainer(run_config(validate_every=3), windows, folder=tmp_path / name, device=CPU).run()
        ends.append(load_world_model(run.checkpoint)[0].state_dict())
    assert [name for name in ends[0] if not torch.equal(ends[0][name], ends[1][name])] == []
