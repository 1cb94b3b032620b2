"""Intervals and tests against published numbers, exact counts and their own definitions."""

from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from alewm.errors import InputError
from alewm.evaluation.statistics import (
    Proportion,
    Spread,
    compare_paired,
    family_interval,
    student_quantile,
    wilson_interval,
)


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
    assert Spread.of([0.93, 0.955, 0.955]).percent() == "94.67 ± 0.83", "a row of the paper"


def test_one_seed_has_no_standard_error_and_no_seed_no_mean():
    assert Spread.of([0.5]).sem is None
    assert Spread.of([0.5]).percent() == "50.00"
    with pytest.raises(InputError, match="at least one seed"):
        Spread.of([])


@settings(max_examples=40)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 20))
def test_single_pairs_of_one_seed_give_the_exact_test_of_matched_pairs(won, lost, alike):
    first = [True] * won + [False] * lost + [True] * alike
    second = [False] * won + [True] * lost + [True] * alike
    assume(first)
    compared = compare_paired([first], [second], range(len(first)), num_resamples=20_000)
    fewer, all_of_them = min(won, lost), won + lost
    exact = min(1.0, 2 * sum(comb(all_of_them, n) for n in range(fewer + 1)) / 2**all_of_them)
    # Up to 14 pairs all signs are tried; beyond, 20,000 random ones.
    tolerance = 1e-9 if all_of_them <= 14 else 0.02
    assert compared.p_value == pytest.approx(exact, abs=tolerance)
    assert (compared.won, compared.lost) == (won, lost)
    assert compared.difference == pytest.approx((won - lost) / len(first))


def test_copies_of_pairs_change_neither_interval_nor_test():
    rng = np.random.default_rng(3)
    first, second = rng.random((3, 60)) < 0.8, rng.random((2, 60)) < 0.7
    clusters = [n // 3 for n in range(60)]
    alone = compare_paired(first, second, clusters)
    five = compare_paired(np.tile(first, 5), np.tile(second, 5), clusters * 5)
    assert five.interval == pytest.approx(alone.interval)
    assert five.p_value == alone.p_value
    assert compare_paired(first, second, clusters) == alone  # seeded
    naive = compare_paired(np.tile(first, 5), np.tile(second, 5), range(300))
    assert naive.interval[1] - naive.interval[0] < alone.interval[1] - alone.interval[0]


def test_swapping_the_methods_mirrors_the_comparison():
    rng = np.random.default_rng(4)
    first, second = rng.random((1, 80)) < 0.8, rng.random((1, 80)) < 0.6
    one, other = compare_paired(first, second, range(80)), compare_paired(second, first, range(80))
    assert one.interval == pytest.approx((-other.interval[1], -other.interval[0]))
    assert one.p_value == pytest.approx(other.p_value, abs=0.02)
    assert {one.verdict, other.verdict} <= {"ahead", "behind"}
    assert compare_paired(first, first, range(80)).verdict == "undecided"
    assert compare_paired(first, first, range(80)).p_value == 1


def test_an_interval_by_clusters_holds_the_truth_as_often_as_it_says():
    """Episodes of five pairs that fail together, two models of different skill: 300 such experiments."""
    rng, held, naive_held, small, num = np.random.default_rng(5), 0, 0, 0, 300
    clusters = np.repeat(np.arange(60), 5)
    for _ in range(num):
        hardness = rng.normal(size=60)[clusters]
        luck = rng.normal(size=(2, 60))[:, clusters]
        first, second = ((2 * hardness + 2 * luck[m] + rng.normal(size=300) > 0)[None] for m in (0, 1))
        found = compare_paired(first, second, clusters.tolist(), num_resamples=400)
        held += found.interval[0] <= 0 <= found.interval[1]
        small += found.p_value < 0.05
        naive = compare_paired(first, second, range(300), num_resamples=400)
        naive_held += naive.interval[0] <= 0 <= naive.interval[1]
    assert 0.90 <= held / num <= 0.98
    assert 0.02 <= small / num <= 0.09
    assert naive_held / num < 0.85


def test_seeds_that_differ_widen_the_interval():
    pairs = [True] * 50 + [False] * 50
    alike = compare_paired([pairs] * 3, [pairs[::-1]] * 3, range(100))
    seeds = [[True] * n + [False] * (100 - n) for n in (20, 50, 80)]
    apart = compare_paired(seeds, [pairs[::-1]] * 3, range(100))
    assert apart.difference == pytest.approx(alike.difference)
    assert apart.interval[1] - apart.interval[0] > 1.5 * (alike.interval[1] - alike.interval[0])


def test_methods_that_met_other_pairs_are_not_compared():
    with pytest.raises(InputError, match=r"the same 3 pairs, got the shapes \[1, 3\] and \[1, 2\]"):
        compare_paired([[True] * 3], [[True] * 2], range(3))


@pytest.mark.parametrize(
    # Tables of Student's t, two-sided 95 %.
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (19, 2.093), (184, 1.973)],
)
def test_quantiles_of_student(freedom, quantile):
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, abs=0.005)


families_of_trials = st.lists(
    st.integers(1, 12).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))),
    min_size=2,
    max_size=40,
)


@given(families_of_trials)
def test_an_interval_by_family_holds_the_rate_and_is_wilsons_of_no_more_trials(families):
    successes, trials = (sum(family[i] for family in families) for i in range(2))
    lower, upper = family_interval(families)
    assert 0 <= lower <= successes / trials <= upper <= 1
    wilson = wilson_interval(successes, trials)
    assert lower <= wilson[0] + 1e-12
    assert upper >= wilson[1] - 1e-12
    missed = [(count - part, count) for part, count in families]
    assert family_interval(missed) == pytest.approx((1 - upper, 1 - lower))


def test_families_that_always_agree_count_once_each():
    """Ten copies that end alike say as much as one pair: 12 of 20 families are 12 of 20 trials."""
    lower, upper = family_interval([(10, 10)] * 12 + [(0, 10)] * 8)
    t, rate, effective = 2.093024, 0.6, 19  # the variance over families has 19 in its denominator, that of a rate 20
    centre = (rate + t * t / (2 * effective)) / (1 + t * t / effective)
    half = t * sqrt(rate * (1 - rate) / effective + t * t / (4 * effective**2)) / (1 + t * t / effective)
    assert (lower, upper) == pytest.approx((centre - half, centre + half), abs=1e-4)


def test_the_interval_by_family_covers_where_wilsons_does_not():
    """Rates that differ from demonstration to demonstration: 20 of them with ten pairs each, rate 0.7 in the mean."""
    generator, covered = np.random.default_rng(0), np.zeros(2)
    repeats = 2000
    for _ in range(repeats):
        families = [(int(part), 10) for part in generator.binomial(10, generator.beta(1.4, 0.6, 20))]
        wilson = wilson_interval(sum(part for part, _ in families), 200)
        covered += [lower <= 0.7 <= upper for lower, upper in (family_interval(families), wilson)]
    by_family, independent = covered / repeats
    assert 0.94 < by_family < 0.97
    assert independent < 0.8


def test_one_family_says_nothing_of_others():
    assert family_interval([(3, 5)]) == (0.0, 1.0)
    assert family_interval([(3, 5), (0, 0)]) == (0.0, 1.0)


def test_a_proportion_is_by_family_only_where_every_family_is_known():
    outcomes = [True, True, False, False, True, True]
    by_family = Proportion.of(outcomes, [4, 4, 7, 7, 9, 9])
    assert by_family.families == ((2, 2), (0, 2), (2, 2))
    assert by_family.interval == list(family_interval([(2, 2), (0, 2), (2, 2)]))
    for unknown in ((), [None] * 6, [4, 4, None, None, 9, 9]):
        assert Proportion.of(outcomes, unknown).interval == list(wilson_interval(4, 6))
    with pytest.raises(InputError, match="6 outcomes need as many families, got 2"):
        Proportion.of(outcomes, [4, 4])
