"""The paper's propositions, stated as computations.

1. Ordered aggregate variance: Cov(z_0) = diag(ρ), non-increasing, with trace E[K], dropping only at supported
   capacities.
2. Target-law matching: the population discrepancy is zero at the target and positive away from it.
3. The corollary on variances: active variance ρ_π / ρ_q, and the raw variance in its three regimes.
4. Survival-weighted predictive value: the telescoping identity, and that larger gains belong earlier.
"""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm import CapacitySupport
from alewm.capacity.support import polynomial_prior, prefix_masks, survival
from alewm.regularizers.quadrature import EPPS_PULLEY, prefix_mixture_target, random_directions

capacities = st.sets(st.integers(1, 12), min_size=1, max_size=5).map(lambda ks: tuple(sorted(ks)))
degrees = st.floats(-4, 4)


@given(capacities, degrees)
def test_proposition_1_the_target_s_covariance(capacities, degree):
    support = CapacitySupport(capacities)
    prior = polynomial_prior(len(support), degree, dtype=torch.float64)
    rho = survival(prior, support)
    masks = prefix_masks(support, dtype=torch.float64)
    by_total_covariance = torch.einsum("c,cj->j", prior, masks)
    torch.testing.assert_close(rho, by_total_covariance)
    assert (rho.diff() <= 1e-12).all()
    capacities = torch.tensor(support.capacities, dtype=torch.float64)
    torch.testing.assert_close(rho.sum(), (prior * capacities).sum())
    drops = rho - torch.cat((rho[1:], torch.zeros(1, dtype=torch.float64)))
    for j, drop in enumerate(drops.tolist(), start=1):
        expected = prior[support.capacities.index(j)].item() if j in support.capacities else 0.0
        assert drop == pytest.approx(expected, abs=1e-12)


def test_proposition_1_on_draws_of_the_target():
    support, num = CapacitySupport((2, 3, 6)), 400_000
    prior = polynomial_prior(3, 1.0, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    capacity = torch.multinomial(prior, num, replacement=True, generator=generator)
    z = prefix_masks(support, dtype=torch.float64)[capacity] * torch.randn(
        num, 6, generator=generator, dtype=torch.float64
    )
    torch.testing.assert_close(torch.cov(z.T), survival(prior, support).diag(), atol=0.02, rtol=0)


def population_discrepancy(variances, weights, prior, support):
    """The discrepancy of the law Σ_k weights_k N(0, variances_k) against the target, over many directions.

    `variances` is [C, D]: the diagonal covariance of the masked latent given capacity k. No samples are involved.
    """
    u = random_directions(support.latent_dim, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    knots, quadrature_weights = EPPS_PULLEY.knots(u), EPPS_PULLEY.weights(u)
    exponent = -0.5 * knots.square()[:, None, None] * (variances @ u.square())
    law = (weights[:, None] * exponent.exp()).sum(1)
    gap = law - prefix_mixture_target(knots, u, prior, support)
    return float((quadrature_weights[:, None] * gap.square()).sum(0).mean())


@given(degrees, st.floats(0.3, 3.0), st.integers(0, 2))
@settings(max_examples=30)
def test_proposition_2_zero_at_the_target_and_only_there(degree, scale, changed):
    support = CapacitySupport((1, 3, 4))
    prior = polynomial_prior(3, degree, dtype=torch.float64)
    masks = prefix_masks(support, dtype=torch.float64)
    assert population_discrepancy(masks, prior, prior, support) < 1e-25
    other = masks.clone()
    other[changed] *= scale
    if abs(scale - 1) > 0.1 and prior[changed] > 0.05:
        assert population_discrepancy(other, prior, prior, support) > 1e-9
    moved = 0.5 * prior + 0.5 * torch.eye(3, dtype=torch.float64)[changed]
    if prior[changed] < 0.9:
        assert population_discrepancy(masks, moved, prior, support) > 1e-9


def population(seed, context_count=40, width=5, support=None):
    """A finite population of contexts: equally likely latents s(w) and selector probabilities q(k | w)."""
    generator = torch.Generator().manual_seed(seed)
    s = torch.randn(context_count, width, generator=generator, dtype=torch.float64)
    q = torch.randn(context_count, len(support), generator=generator, dtype=torch.float64).mul(2).softmax(-1)
    return s, q


@given(st.integers(0, 10_000))
def test_corollary_active_and_raw_variance(seed):
    """Exact on a finite population, after shifting and scaling each coordinate so that its masked moments match.

    Matching the law fixes E[m s] = 0 and E[m s²] = ρ_π; the rest of the corollary must follow.
    """
    support = CapacitySupport((2, 3, 5))
    s, q = population(seed, support=support)
    rho_pi = survival(polynomial_prior(3, 0.5, dtype=torch.float64), support)
    active = survival(q, support)
    rho_q = active.mean(0)
    s = s - (active * s).mean(0) / rho_q
    s = s * (rho_pi / (active * s.square()).mean(0)).sqrt()
    torch.testing.assert_close((active * s).mean(0), torch.zeros(5, dtype=torch.float64), atol=1e-12, rtol=0)

    mean_active = (active * s).mean(0) / rho_q
    var_active = (active * s.square()).mean(0) / rho_q - mean_active.square()
    torch.testing.assert_close(var_active, rho_pi / rho_q)

    raw = s.square().mean(0) - s.mean(0).square()
    always = rho_q > 1 - 1e-12
    torch.testing.assert_close(raw[always], rho_pi[always])
    some = ~always
    inactive = (1 - active)[:, some]
    mu_0 = (inactive * s[:, some]).mean(0) / (1 - rho_q[some])
    v_0 = (inactive * s[:, some].square()).mean(0) / (1 - rho_q[some]) - mu_0.square()
    predicted = rho_pi[some] + (1 - rho_q[some]) * v_0 + rho_q[some] * (1 - rho_q[some]) * mu_0.square()
    torch.testing.assert_close(raw[some], predicted)
    assert (raw >= rho_pi - 1e-12).all()


def test_corollary_a_coordinate_that_is_never_active_keeps_its_own_variance():
    """The regime ρ_q = 0, which exact matching allows only where ρ_π = 0: nothing of the masked law depends on it."""
    support = CapacitySupport((2, 4))
    q = torch.tensor([[1.0, 0.0]]).expand(50, 2)
    assert (survival(q, support).mean(0)[2:] == 0).all()
    s = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    masked = survival(q, support) * s
    assert torch.equal(masked[:, 2:], torch.zeros(50, 2))


@given(capacities, degrees, st.integers(0, 1000))
def test_proposition_3_the_telescoping_identity(capacities, degree, seed):
    """E_K[R_K] = R_0 - Σ ρ^(k_c) Δ_c, for any risks at all; also context by context with negative gains."""
    support = CapacitySupport(capacities)
    prior = polynomial_prior(len(support), degree, dtype=torch.float64)
    risks = torch.randn(len(support) + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    gains = risks[:-1] - risks[1:]
    at_block_ends = survival(prior, support)[torch.tensor(support.capacities) - 1]
    expected_risk = (prior * risks[1:]).sum()
    torch.testing.assert_close(expected_risk, risks[0] - (at_block_ends * gains).sum())


@given(degrees, st.lists(st.floats(0, 10), min_size=4, max_size=4))
def test_proposition_3_larger_gains_belong_earlier(degree, gains):
    """Of all orders of fixed additive gains, the non-increasing one has the least expected risk."""
    support = CapacitySupport((1, 2, 5, 6))
    at_block_ends = survival(polynomial_prior(4, degree, dtype=torch.float64), support)[[0, 1, 4, 5]].tolist()

    def risk(order):
        return -sum(rho * gain for rho, gain in zip(at_block_ends, order, strict=True))

    best = min(risk(order) for order in itertools.permutations(gains))
    assert risk(sorted(gains, reverse=True)) == pytest.approx(best, abs=1e-9)


def test_proposition_3_nested_information_never_hurts_the_best_predictor():
    """R_k of the least-squares predictor falls with k, by exactly the squared distance of the two predictions."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(500, 6, generator=generator, dtype=torch.float64)
    target = inputs @ torch.randn(6, 3, generator=generator, dtype=torch.float64) + torch.randn(
        500, 3, generator=generator, dtype=torch.float64
    )
    predictions = [inputs[:, :k] @ torch.linalg.lstsq(inputs[:, :k], target).solution for k in range(1, 7)]
    risks = [(target - prediction).square().sum(1).mean() for prediction in predictions]
    for (mu_k, risk_k), (mu_l, risk_l) in itertools.combinations(zip(predictions, risks, strict=True), 2):
        torch.testing.assert_close(risk_k - risk_l, (mu_l - mu_k).square().sum(1).mean())
        assert risk_k >= risk_l
