"""iCEM, MPPI and gradient descent find a known optimum, episode by episode, whatever is planned beside it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alewm.planning.noise import candidate_noise
from alewm.planning.planner import Planner, PlanningConfig
from alewm.planning.search import SEARCHES, CEMConfig, _colouring, gradient, icem, mppi
from small_models import our_model

CONFIG = CEMConfig(num_candidates=200, num_iterations=30, num_elites=20)
H, A = 4, 6


def keys(*episodes):
    return [(42, episode, 0) for episode in episodes]


def noise(*episodes, config=CONFIG):
    return candidate_noise(keys(*episodes), config.num_iterations, config.num_candidates, H, A, device="cpu")


def bowls(*episodes, is_smooth=False):
    """A bowl per episode with its own lowest point, ten times steeper in one direction than in another."""
    lowest = torch.stack([torch.randn(H, A, generator=torch.Generator().manual_seed(e)) for e in episodes])
    lowest = lowest.mean(1, keepdim=True).expand_as(lowest) if is_smooth else lowest
    steepness = torch.logspace(-0.5, 0.5, H * A).view(H, A)
    return lowest, lambda candidates: (steepness * (candidates - lowest[:, None]).square()).sum((2, 3))


@pytest.mark.parametrize("name", ["cem", "icem", "gradient"])
def test_the_lowest_point_of_a_bowl_is_found(name):
    lowest, score = bowls(1, 2, 3, is_smooth=name == "icem")  # which its noise is made for
    long = CEMConfig(num_candidates=400, num_iterations=100, num_elites=40)
    found = SEARCHES[name](score, noise(1, 2, 3, config=long), long)
    assert (found.mean - lowest).abs().max() < 0.05
    torch.testing.assert_close(found.cost, score(found.mean[:, None])[:, 0])
    assert found.elite_costs.shape == (3, long.num_iterations)
    assert (found.elite_costs[:, -1] < found.elite_costs[:, 0]).all()


def test_mppi_goes_downhill_but_its_spread_stays():
    """A weighted average of candidates that never come closer together ends nearer to the lowest point, not at it."""
    _, score = bowls(1, 2, 3)
    found = SEARCHES["mppi"](score, noise(1, 2, 3), CONFIG)
    assert (found.cost < 0.5 * score(torch.zeros(3, 1, H, A))[:, 0]).all()
    assert (found.std == CONFIG.initial_std).all()


@pytest.mark.parametrize("name", SEARCHES)
def test_an_episode_is_planned_alike_alone_and_beside_others(name):
    _, together = bowls(5, 9, 2)
    _, alone = bowls(9)
    beside = SEARCHES[name](together, noise(5, 9, 2), CONFIG)
    single = SEARCHES[name](alone, noise(9), CONFIG)
    assert torch.equal(beside.mean[1], single.mean[0])
    assert torch.equal(beside.cost[1], single.cost[0])


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_starts_where_it_is_told_and_never_prefers_a_cost_that_is_no_number(name):
    lowest, bowl = bowls(1)

    def score(candidates):
        costs = bowl(candidates)
        return torch.where(candidates[..., 0, 0] > lowest[0, 0, 0] + 0.5, torch.nan, costs)

    found = SEARCHES[name](score, noise(1), CONFIG, initial_mean=lowest)
    assert found.cost.isfinite().all()
    assert (found.cost < 0.3 * bowl(torch.zeros(1, 1, H, A))).all()
    at_once = SEARCHES[name](bowl, 0 * noise(1), CONFIG, initial_mean=lowest)
    torch.testing.assert_close(at_once.mean, lowest, atol=1e-4, rtol=0)


def test_icem_keeps_its_best_candidate():
    """With momentum 1 the distribution stays, so that only kept candidates can improve the plan."""
    lowest, score = bowls(1)
    still = icem(score, noise(1), CONFIG, momentum=1.0, num_kept=5)
    drawn = noise(1)
    colouring = _colouring(H, 2.0).float()
    everything = torch.einsum("hg,ibsga->ibsha", colouring, drawn)
    assert torch.isclose(still.cost, torch.stack([score(one) for one in everything]).min())
    assert (still.mean - lowest).abs().max() > 0.1


@given(st.integers(1, 12), st.floats(0, 4))
def test_coloured_noise_has_unit_variance_and_the_spectrum_of_its_exponent(length, exponent):
    matrix = _colouring(length, exponent)
    torch.testing.assert_close(matrix.square().sum(1), torch.ones(length, dtype=torch.float64))
    power = torch.fft.rfft(matrix, dim=0).abs().square().sum(1)
    frequencies = torch.arange(len(power), dtype=torch.float64).clamp(min=1)
    expected = frequencies**-exponent
    torch.testing.assert_close(power / power[0], expected / expected[0], atol=1e-9, rtol=1e-6)


def test_white_noise_is_left_as_it_is():
    torch.testing.assert_close(_colouring(5, 0.0), torch.eye(5, dtype=torch.float64), atol=1e-12, rtol=0)


def test_mppi_of_a_low_temperature_takes_the_best_candidate():
    _, score = bowls(1)
    once = CEMConfig(num_candidates=50, num_iterations=1, num_elites=5)
    drawn = noise(1, config=once)
    found = mppi(score, drawn, once, temperature=1e-6)
    torch.testing.assert_close(found.mean[0], drawn[0, 0, score(drawn[0]).argmin()])


def test_gradient_descent_never_ends_worse_than_it_began():
    """Steps far too long leave the best of the first candidates."""
    _, score = bowls(1, 2)
    drawn = noise(1, 2)
    found = gradient(score, drawn, CONFIG, step_size=1e3)
    assert (found.cost <= score(drawn[0]).min(1).values).all()


@pytest.mark.parametrize("name", SEARCHES)
def test_a_planner_plans_with_each_search_and_leaves_no_gradient(name):
    model = our_model(64, (4, 16, 64)).requires_grad_(True)
    frames = torch.randint(256, (2, 3, 28, 28, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    config = PlanningConfig(cem=CEMConfig(24, 4, 6), search=name)
    planner = Planner(model, (0, 0), (1, 1), config)
    plans, _ = planner.plan_between(*frames)
    none = planner.plan_between(*frames[:, 1:2])[0]  # episode 0 of this batch has other noise
    assert plans.costs.isfinite().all()
    assert not plans.blocks.requires_grad
    assert none.blocks.shape == (1, 5, 10)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert (f"search={name!r}" in repr(planner)) == (name != "cem")
