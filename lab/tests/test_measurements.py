"""The mathematics of the measurements, apart from any model."""

from itertools import pairwise, permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alewm.evaluation.probes import fit_networks, fit_ridge, recovered
from alewm_lab.experiments.episodes import draw_episodes
from alewm_lab.experiments.measured_models import order_of_gains


def samples(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_the_best_order_is_the_best_of_all_permutations(gains, random):
    survival = sorted((random.random() for _ in gains), reverse=True)
    risks = [10.0]
    for gain in gains:
        risks.append(risks[-1] - gain)

    def expected(ordered):
        return 10.0 - sum(rho * gain for rho, gain in zip(survival, ordered, strict=True))

    every = [expected(ordered) for ordered in permutations(gains)]
    found = order_of_gains(risks, survival)
    if max(every) - min(every) > 1e-6:
        assert found["distance"] == pytest.approx((expected(gains) - min(every)) / (max(every) - min(every)), abs=1e-6)
    assert found["is_monotone"] == all(a >= b for a, b in pairwise(risks))


def test_inversions_count_pairs_with_the_larger_gain_later():
    assert order_of_gains([6.0, 5.0, 3.0, 0.0], [1.0, 0.5, 0.2])["inversions"] == 3
    assert order_of_gains([6.0, 3.0, 1.0, 0.0], [1.0, 0.5, 0.2]) == {
        "gains": [3.0, 2.0, 1.0],
        "is_monotone": True,
        "inversions": 0,
        "distance": 0.0,
    }


def test_r_squared_is_one_for_the_truth_and_zero_for_its_mean():
    y = 100 + samples(0, 50, 2)
    torch.testing.assert_close(recovered(y, y), torch.ones(2))
    torch.testing.assert_close(recovered(y.mean(0).expand_as(y), y), torch.zeros(2), atol=1e-4, rtol=0)


def test_probes_find_what_is_there_and_nothing_else():
    x = samples(0, 2000, 4)
    linear = torch.stack([x[:, 0] - 2 * x[:, 1] + 3, x[:, 2]], 1)
    curved = (x[:, :1] * x[:, 1:2]).clone()
    ridge = fit_ridge(x[:1500], linear[:1500])
    assert (recovered(ridge(x[1500:]), linear[1500:]) > 0.999).all()
    assert recovered(fit_ridge(x[:1500], curved[:1500])(x[1500:]), curved[1500:]).item() < 0.1
    seen = torch.arange(x.shape[1]) < torch.tensor([[1], [x.shape[1]]])
    generator = torch.Generator().manual_seed(0)
    networks = fit_networks(x[:1500], curved[:1500], seen, generator, device=torch.device("cpu"), num_steps=600)
    blind, sighted = networks(x[1500:])
    assert recovered(sighted, curved[1500:]).item() > 0.9
    assert recovered(blind, curved[1500:]).item() < 0.1
    noise = samples(1, 2000, 1)
    assert recovered(fit_ridge(x[:1500], noise[:1500])(x[1500:]), noise[1500:]).item() < 0.05


def test_episodes_are_drawn_by_a_fixed_seed_and_not_picked():
    assert draw_episodes(range(50)) == draw_episodes(range(50))
    assert draw_episodes(range(50)) != [0, 1]
    assert draw_episodes([7]) == [7]
    assert draw_episodes([]) == []
