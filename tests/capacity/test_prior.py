"""The polynomial prior over ranks, and the survival probabilities it implies."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alewm import CapacitySupport
from alewm.capacity.support import (
    log_polynomial_prior,
    polynomial_prior,
    survival,
)
from alewm.errors import InputError
from alewm_lab.oscillator.measures import distance_from_survival

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


def test_a_latent_that_matches_its_target_is_at_no_distance_from_survival():
    support = CapacitySupport((2, 4))
    rho = survival(torch.tensor([0.25, 0.75]), support).tolist()
    assert rho == [1.0, 1.0, 0.75, 0.75]
    assert distance_from_survival(rho, rho) == 0
    assert distance_from_survival([1.0, 0.5, 0.75, 1.75], rho) == (0.5 + 1.0) / 4
    with pytest.raises(ValueError, match="longer"):
        distance_from_survival(rho[:3], rho)
