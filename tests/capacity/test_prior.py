"""The polynomial priors over ranks and over values, and the survival probabilities they imply."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alewm import CapacitySupport
from alewm.capacity.prior import (
    capacity_prior,
    distance_from_survival,
    log_capacity_prior,
    log_polynomial_prior,
    polynomial_prior,
    survival,
)
from alewm.errors import InputError

degrees = st.floats(-50, 50)
capacities = st.sets(st.integers(1, 30), min_size=1, max_size=8).map(lambda ks: tuple(sorted(ks)))


@given(st.integers(1, 12), degrees)
def test_weights_are_the_paper_s(num_capacities, degree):
    weights = torch.tensor(
        [(num_capacities - c + 1) ** degree for c in range(1, num_capacities + 1)], dtype=torch.float64
    )
    prior = polynomial_prior(num_capacities, degree, dtype=torch.float64)
    torch.testing.assert_close(prior, weights / weights.sum())


def test_the_sign_of_the_degree_says_which_end_is_favoured():
    assert polynomial_prior(5, 2.0).diff().lt(0).all()
    assert polynomial_prior(5, -2.0).diff().gt(0).all()
    torch.testing.assert_close(polynomial_prior(5, 0.0), torch.full((5,), 0.2))


def test_the_paper_s_initial_probability_of_the_mixed_experiment():
    """The caption of the mixed-data figure gives q(192) = 0.837 at the start; degree -3 on eight capacities has it."""
    assert round(polynomial_prior(8, -3.0)[-1].item(), 3) == 0.837


@pytest.mark.parametrize("degree", [1e3, -1e3, 1e6])
def test_extreme_degrees_neither_overflow_nor_vanish(degree):
    log_prior = log_polynomial_prior(11, degree)
    assert log_prior.isfinite().all()
    assert log_prior.exp().sum() == pytest.approx(1)
    assert log_prior.argmax() == (0 if degree > 0 else 10)


@pytest.mark.parametrize("degree", [math.nan, math.inf])
def test_a_degree_that_is_not_finite_is_refused(degree):
    with pytest.raises(InputError, match="degree must be finite"):
        polynomial_prior(3, degree)


@given(capacities, degrees)
def test_survival_is_the_probability_of_reaching_a_coordinate(capacities, degree):
    support = CapacitySupport(capacities)
    prior = polynomial_prior(len(support), degree, dtype=torch.float64)
    expected = [
        sum(p for k, p in zip(support.capacities, prior.tolist(), strict=True) if k >= j)
        for j in range(1, support.latent_dim + 1)
    ]
    torch.testing.assert_close(survival(prior, support), torch.tensor(expected, dtype=torch.float64))


@given(capacities, degrees)
def test_weights_over_values_are_powers_of_the_mirrored_capacity(capacities, degree):
    support = CapacitySupport(capacities)
    weights = torch.tensor([(capacities[0] + capacities[-1] - k) ** degree for k in capacities], dtype=torch.float64)
    prior = capacity_prior(support, degree, "values", dtype=torch.float64)
    torch.testing.assert_close(prior, weights / weights.sum())


@given(st.integers(1, 12), st.integers(1, 40), degrees)
def test_values_are_ranks_where_capacities_are_multiples_of_the_first(num_capacities, first, degree):
    support = CapacitySupport(tuple(first * c for c in range(1, num_capacities + 1)))
    torch.testing.assert_close(
        capacity_prior(support, degree, "values", dtype=torch.float64),
        capacity_prior(support, degree, "ranks", dtype=torch.float64),
    )


def test_values_look_at_the_spacing_and_ranks_do_not():
    even, uneven = CapacitySupport((8, 16, 24, 32)), CapacitySupport((8, 9, 10, 32))
    assert capacity_prior(even, 2.0, "ranks").equal(capacity_prior(uneven, 2.0, "ranks"))
    by_value = capacity_prior(uneven, 2.0, "values")
    # Three capacities of nearly equal size are nearly equally probable.
    assert by_value[2] / by_value[0] > 0.87
    assert by_value[3] / by_value[0] == pytest.approx((8 / 32) ** 2)


@given(capacities, st.floats(-5, 5))
def test_priors_agree_on_indifference_and_on_which_end_a_degree_favours(capacities, degree):
    support = CapacitySupport(capacities)
    for name in ("ranks", "values", "smooth"):
        prior = capacity_prior(support, degree, name, dtype=torch.float64)
        assert prior.sum() == pytest.approx(1)
        assert (prior.diff() * degree <= 0).all()
        torch.testing.assert_close(prior, log_capacity_prior(support, degree, name, dtype=torch.float64).exp())
    assert capacity_prior(support, degree).equal(polynomial_prior(len(support), degree))
    assert capacity_prior(support, degree, "smooth").equal(capacity_prior(support, degree))


def test_a_latent_that_matches_its_target_is_at_no_distance_from_survival():
    support = CapacitySupport((2, 4))
    rho = survival(torch.tensor([0.25, 0.75]), support).tolist()
    assert rho == [1.0, 1.0, 0.75, 0.75]
    assert distance_from_survival(rho, rho) == 0
    assert distance_from_survival([1.0, 0.5, 0.75, 1.75], rho) == (0.5 + 1.0) / 4
    with pytest.raises(ValueError, match="longer"):
        distance_from_survival(rho[:3], rho)
