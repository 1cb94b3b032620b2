"""The search alone: a quadratic bowl, no network."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm.errors import InputError
from alewm.planning.noise import candidate_noise
from alewm.planning.search import CEM, CEMConfig, solve

SMALL = CEMConfig(num_candidates=64, num_iterations=12, num_elites=8)


def noise_for(keys, config=SMALL, horizon=2, action_dim=3):
    return candidate_noise(keys, config.num_iterations, config.num_candidates, horizon, action_dim, device="cpu")


def bowl(target):
    return lambda candidates: (candidates - target[:, None]).square().sum((-1, -2))


def test_the_paper_s_setting_finds_the_bottom_of_every_bowl_at_once():
    config = CEMConfig()
    target = torch.randn(4, 5, 4, generator=torch.Generator().manual_seed(0)).clamp(-1, 1)
    result = solve(bowl(target), noise_for([(0, e, 0) for e in range(4)], config, 5, 4), config)
    assert torch.allclose(result.mean, target, atol=0.05)
    assert torch.allclose(result.cost, bowl(target)(result.mean[:, None])[:, 0])
    assert (result.elite_costs[:, 0] > 100 * result.elite_costs[:, -1]).all()


def test_the_paper_s_initial_mean_and_spread():
    seen = []

    def score(candidates):
        seen.append(candidates)
        return candidates.square().sum((-1, -2))

    noise = noise_for([(0, 0, 0)])
    solve(score, noise, SMALL)
    assert torch.equal(seen[0], noise[0])
    assert len(seen) == SMALL.num_iterations + 1  # the last call prices the plan itself


def test_a_search_as_an_object_scores_its_start_and_candidates_of_its_spread_around_it():
    seen = []

    def score(candidates):
        seen.append(candidates)
        return candidates.square().sum((-1, -2))

    start = torch.full((2, 2, 3), 7.0)
    search = CEM(num_candidates=2000, num_iterations=1, num_elites=8, initial_std=0.5)
    search(score, start, generator=torch.Generator().manual_seed(0))
    assert torch.equal(seen[0][:, 0], start)
    assert abs((seen[0][:, 1:] - 7).mean()) < 0.01
    assert abs((seen[0][:, 1:] - 7).std() - 0.5) < 0.01


def test_each_update_is_the_mean_and_sample_std_of_the_lowest_costs_and_candidate_zero_is_the_mean():
    seen = []

    def score(candidates):
        seen.append(candidates)
        return candidates[..., 0, 0]

    noise = noise_for([(0, 0, 0), (0, 1, 0)])
    result = solve(score, noise, SMALL)
    for step in range(SMALL.num_iterations - 1):
        order = seen[step][..., 0, 0].argsort(1)[:, : SMALL.num_elites]
        elites = torch.stack([seen[step][b, order[b]] for b in range(2)])
        expected = elites.mean(1)[:, None] + elites.std(1, correction=1)[:, None] * noise[step + 1]
        assert torch.allclose(seen[step + 1], expected, atol=1e-5)
        assert torch.allclose(seen[step + 1][:, 0], elites.mean(1), atol=1e-6)
    assert torch.equal(seen[-1][:, 0], result.mean)


def test_the_plan_is_not_clipped():
    target = torch.full((1, 2, 3), 3.0)
    result = solve(bowl(target), noise_for([(0, 0, 0)], CEMConfig()), CEMConfig())
    assert torch.allclose(result.mean, target, atol=0.1)


def test_candidates_without_a_number_are_never_elites():
    def score(candidates):
        cost = candidates.square().sum((-1, -2))
        return torch.where(candidates[..., 0, 0] > 0, torch.nan, cost)

    result = solve(score, noise_for([(0, 0, 0)]), SMALL)
    assert torch.isfinite(result.mean).all()
    assert result.mean[0, 0, 0] <= 0


def test_a_warm_start_is_where_the_search_begins():
    target = torch.full((1, 2, 3), 30.0)
    config = CEMConfig(num_candidates=64, num_iterations=3, num_elites=8)
    noise = noise_for([(0, 0, 0)], config)
    assert solve(bowl(target), noise, config, target + 0.5).cost < solve(bowl(target), noise, config).cost


@settings(max_examples=20)
@given(st.permutations(range(5)), st.integers(1, 5))
def test_regrouping_episodes_changes_no_episode_s_noise_or_plan(order, size):
    keys = [(7, episode, 1) for episode in order[:size]]
    noise = noise_for(keys)
    target = torch.arange(5.0)[list(order[:size])][:, None, None].expand(-1, 2, 3)
    together = solve(bowl(target), noise, SMALL)
    for b, key in enumerate(keys):
        alone = noise_for([key])
        assert torch.equal(alone[:, 0], noise[:, b])
        assert torch.allclose(solve(bowl(target[b : b + 1]), alone, SMALL).mean[0], together.mean[b], atol=1e-5)


def test_every_part_of_the_key_names_another_stream():
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (11, 0, 0), (1, 10, 0)]
    noise = noise_for(keys)
    for a in range(len(keys)):
        for b in range(a):
            assert not torch.isclose(noise[:, a, 1:], noise[:, b, 1:]).all(-1).any()


def test_noise_is_standard_normal():
    noise = noise_for([(3, e, 0) for e in range(40)], CEMConfig(), 5, 10)[:, :, 1:]
    assert abs(noise.mean()) < 0.002
    assert abs(noise.std() - 1) < 0.002


@pytest.mark.parametrize("sizes", [{"num_elites": 1}, {"num_elites": 301}])
def test_impossible_elites_are_refused(sizes):
    with pytest.raises(InputError, match="at least 2 elites"):
        CEMConfig(**sizes)


def test_impossible_iterations_and_spread_are_refused():
    with pytest.raises(InputError, match="num_iterations must be at least 1, got 0"):
        CEMConfig(num_iterations=0)
    with pytest.raises(InputError, match="initial_std must be positive and finite"):
        CEMConfig(initial_std=0.0)
