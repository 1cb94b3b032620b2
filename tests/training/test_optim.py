"""The schedule, the groups, and updates that must not happen."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alewm.errors import InputError
from alewm.model.world_model import build_world_model
from alewm.training.config import ObjectiveConfig, OptimConfig
from alewm.training.objective import Objective
from alewm.training.random_streams import RandomStreams
from alewm.training.step import build_optimizer, learning_rate_factor, set_learning_rate, update
from memory_windows import LEWM, MODEL, Windows, draw_windows

CPU = torch.device("cpu")


@given(num_steps=st.integers(2, 5000), percent=st.integers(0, 50))
def test_the_learning_rate_rises_to_its_peak_then_only_falls(num_steps, percent):
    warmup = percent / 100
    factors = [learning_rate_factor(step, num_steps, warmup) for step in range(num_steps)]
    peak = factors.index(max(factors))
    assert max(factors) == 1
    assert all(factor > 0 for factor in factors)
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)
    assert peak <= math.ceil(warmup * num_steps)


def test_warm_up_is_linear_and_the_end_is_zero():
    factors = [learning_rate_factor(step, 1000, 0.01) for step in range(1001)]
    assert factors[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert factors[505] == pytest.approx(0.5)
    assert factors[1000] == pytest.approx(0, abs=1e-12)


def test_only_the_selector_learns_at_its_own_rate():
    model = build_world_model(MODEL, torch.Generator().manual_seed(0))
    optimizer = build_optimizer(model, OptimConfig(selector_multiplier=3.0))
    set_learning_rate(optimizer, 0.5, progress=0.0)
    rate_of = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        assert rate_of[id(parameter)] == (1.5 if name.startswith("selector.") else 0.5)


@pytest.mark.parametrize(("progress", "rates"), [(0.0, [0.5, 0.0]), (0.249, [0.5, 0.0]), (0.25, [0.5, 1.5])])
def test_a_delayed_selector_learns_nothing_before_its_time(progress, rates):
    model = build_world_model(MODEL, torch.Generator().manual_seed(0))
    optimizer = build_optimizer(model, OptimConfig(selector_multiplier=3.0, selector_delay=0.25))
    set_learning_rate(optimizer, 0.5, progress)
    assert [group["lr"] for group in optimizer.param_groups] == rates


def test_groups_of_checkpoints_from_before_there_were_delays_learn_at_once():
    model = build_world_model(MODEL, torch.Generator().manual_seed(0))
    state = build_optimizer(model, OptimConfig()).state_dict()
    for group in state["param_groups"]:
        del group["delay"]
    optimizer = build_optimizer(model, OptimConfig())
    optimizer.load_state_dict(state)
    set_learning_rate(optimizer, 0.5, progress=0.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]


def test_a_model_without_a_selector_has_one_group():
    model = build_world_model(LEWM, torch.Generator().manual_seed(0))
    assert len(build_optimizer(model, OptimConfig()).param_groups) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup_fraction": 1.0}, r"share in \[0, 1\)"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"selector_delay": 1.0}, "delay is a share in"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        OptimConfig(**options)


def one_update(model, optimizer, windows, clip_norm=1.0):
    streams = RandomStreams(0, CPU)
    noise = streams.draw_step(model, len(windows.pixels), 3, drops=True)
    objective = Objective(ObjectiveConfig(num_projections=8), model.config)
    return update(model, objective, optimizer, *windows, noise, streams.directions, clip_norm=clip_norm)


def test_a_non_finite_update_leaves_weights_and_moments_alone():
    model = build_world_model(MODEL, torch.Generator().manual_seed(0))
    optimizer = build_optimizer(model, OptimConfig(learning_rate=1e-2))
    good = draw_windows(8)
    assert one_update(model, optimizer, good).is_finite
    parameters = [p.detach().clone() for p in model.parameters()]
    moments = [s["exp_avg"].clone() for s in optimizer.state.values()]
    bad = Windows(good.pixels, torch.full_like(good.actions, torch.inf))
    assert not one_update(model, optimizer, bad).is_finite
    assert all(torch.equal(a, b) for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(torch.equal(a, s["exp_avg"]) for a, s in zip(moments, optimizer.state.values(), strict=True))


@pytest.mark.parametrize(
    "spoiled",
    [lambda total, weight: total + torch.inf, lambda total, weight: total + (0 * weight.sum()).sqrt()],
    ids=["an infinite loss with a finite gradient", "a finite loss with a gradient that is none"],
)
def test_either_of_loss_and_gradient_is_enough_to_refuse_an_update(spoiled):
    class Spoiled(Objective):
        def forward(self, model, *arguments):
            losses = super().forward(model, *arguments)
            return losses._replace(total=spoiled(losses.total, model.predictor.position))

    model = build_world_model(MODEL, torch.Generator().manual_seed(0))
    before = [p.detach().clone() for p in model.parameters()]
    optimizer, streams = build_optimizer(model, OptimConfig(learning_rate=1e-2)), RandomStreams(0, CPU)
    windows = draw_windows(8)
    noise = streams.draw_step(model, 8, 3, drops=True)
    objective = Spoiled(ObjectiveConfig(num_projections=8), MODEL)
    result = update(model, objective, optimizer, *windows, noise, streams.directions, clip_norm=1.0)
    assert result.total.isfinite() != result.gradient_norm.isfinite()
    assert not result.is_finite
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_weights_decay_by_themselves_and_all_of_them():
    """Decoupled: where nothing has a gradient, an update is a factor of 1 - rate times decay."""
    model = build_world_model(MODEL, torch.Generator().manual_seed(0))
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = build_optimizer(model, OptimConfig(learning_rate=0.5, weight_decay=0.2))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for old, new in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(new.detach(), 0.9 * old)


def test_gradients_are_clipped_together_and_their_norm_is_reported_before():
    model = build_world_model(MODEL, torch.Generator().manual_seed(0))
    optimizer = build_optimizer(model, OptimConfig())
    result = one_update(model, optimizer, draw_windows(8), clip_norm=1e-3)
    assert result.gradient_norm > 1e-3
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    torch.testing.assert_close(norm, torch.tensor(1e-3), rtol=1e-2, atol=0)
