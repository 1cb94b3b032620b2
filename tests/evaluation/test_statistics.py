"""Wilson's interval against published numbers and its own definition."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from alewm.errors import InputError
from alewm.evaluation.statistics import Proportion, Spread, wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "lower", "upper"),
    # The four examples of Newcombe (Statistics in Medicine 17, 1998), table I, score method.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0000, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_textbook_intervals(successes, trials, lower, upper):
    assert wilson_interval(successes, trials) == pytest.approx((lower, upper), abs=5e-5)


@given(st.integers(1, 500), st.data())
def test_the_bounds_are_the_rates_the_score_test_just_rejects(trials, data):
    successes = data.draw(st.integers(0, trials))
    for bound in wilson_interval(successes, trials):
        assume(0 < bound < 1)
        score = (successes / trials - bound) / (bound * (1 - bound) / trials) ** 0.5
        assert abs(score) == pytest.approx(1.959964, abs=1e-4)


@given(st.integers(0, 500), st.data())
def test_the_interval_holds_the_rate_stays_in_range_and_mirrors(trials, data):
    successes = data.draw(st.integers(0, trials))
    lower, upper = wilson_interval(successes, trials)
    assert 0 <= lower <= (successes / trials if trials else 0.5) <= upper <= 1
    assert wilson_interval(trials - successes, trials) == pytest.approx((1 - upper, 1 - lower))


def test_more_confidence_is_a_wider_interval():
    narrow, wide = wilson_interval(7, 10, 0.5), wilson_interval(7, 10, 0.99)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_no_trials_have_no_rate():
    nothing = Proportion.of([])
    assert nothing.rate is None
    assert nothing.interval == [0.0, 1.0]


@pytest.mark.parametrize(("successes", "trials"), [(3, 2), (-1, 2)])
def test_impossible_counts_are_refused(successes, trials):
    with pytest.raises(InputError, match="0 ≤ successes ≤ trials"):
        wilson_interval(successes, trials)


def test_an_impossible_confidence_is_refused():
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        wilson_interval(1, 2, 1.0)


def test_a_mean_over_seeds_has_the_standard_error_of_a_mean():
    spread = Spread.of([0.5, 0.7, 0.9, 0.7])
    assert spread.mean == pytest.approx(0.7)
    assert spread.sem == pytest.approx((0.08 / 3) ** 0.5 / 2)  # the variance has n - 1, the mean has n numbers
    assert (spread.shown(), spread.percent(1)) == ("0.70 ± 0.08", "70.0 ± 8.2")


def test_one_seed_has_no_standard_error_and_no_seed_no_mean():
    assert Spread.of([0.5]).sem is None
    assert Spread.of([0.5]).percent() == "50.00"
    with pytest.raises(InputError, match="at least one seed"):
        Spread.of([])
