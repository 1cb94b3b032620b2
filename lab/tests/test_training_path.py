"""How far q went from the prior, and when prediction came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alewm.theme import LIGHT
from alewm_lab.experiments.capacity_dynamics import distance_from_prior, draw_dynamics, farthest, halved_at


def test_total_variation_is_zero_at_the_prior_and_one_where_nothing_is_shared():
    steps = [0.0, 50.0, 100.0]
    way = distance_from_prior({2: (steps, [0.75, 0.25, 0.0]), 4: (steps, [0.25, 0.75, 1.0])})
    assert way == (steps, [0.0, 0.5, 0.75])
    assert farthest(way) == (100.0, 0.75)
    assert distance_from_prior({2: ([0.0, 1.0], [1.0, 0.0]), 4: ([0.0, 1.0], [0.0, 1.0])})[1] == [0.0, 1.0]


def test_the_first_of_several_farthest_steps_counts():
    assert farthest(([0.0, 1.0, 2.0, 3.0], [0.0, 0.5, 0.5, 0.25])) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("losses", "step"),
    [((8.0, 5.0, 4.0, 3.0), 3), ((0.1, 8.0, 5.0, 3.0), 4), ((8.0, 7.0, 6.0, 5.0), None)],
)
def test_a_loss_is_halved_when_it_first_is_after_its_top(losses, step):
    assert halved_at(([1.0, 2.0, 3.0, 4.0], list(losses))) == step


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=20))
def test_a_halved_loss_is_half_of_the_highest_or_never_was(losses):
    steps = [float(step) for step in range(len(losses))]
    found, top = halved_at((steps, losses)), losses.index(max(losses))
    later = [loss <= losses[top] / 2 for loss in losses[top:]]
    assert found == (top + later.index(True) if any(later) else None)


def test_no_curve_of_q_leaves_its_panel():
    """Panels share their vertical range, and the highest curve is not in the first of them."""
    steps = [0.0, 1.0]
    low, high = {2: (steps, [0.5, 0.4]), 4: (steps, [0.5, 0.6])}, {2: (steps, [0.5, 0.02]), 4: (steps, [0.5, 0.98])}
    figure = draw_dynamics([("low", low), ("high", high)])(LIGHT)
    for axes in figure.axes:
        bottom, top = axes.get_ylim()
        drawn = [value for line in axes.lines for value in line.get_ydata()]
        assert bottom <= min(drawn)
        assert max(drawn) <= 0.98 < top
