"""What the selector learned, in numbers with known values."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alewm.capacity.support import CapacitySupport
from alewm.evaluation.statistics import capacity_use, total_variation

SUPPORT = CapacitySupport((8, 16, 32))
PRIOR = torch.tensor([0.5, 0.3, 0.2])


def test_a_selector_that_never_moved_has_neither_shift_nor_spread():
    use = capacity_use([8, 8], PRIOR.expand(2, 3), PRIOR, SUPPORT)
    assert use["q_shift"] == pytest.approx(0, abs=1e-7)
    assert use["q_spread"] == pytest.approx(0, abs=1e-7)


def test_certain_choices_have_the_spread_of_their_disagreement():
    use = capacity_use([8, 8, 32, 32], torch.eye(3)[[0, 0, 2, 2]], PRIOR, SUPPORT)
    assert use["q_spread"] == pytest.approx(0.5)
    assert use["q_shift"] == pytest.approx((0 + 0.3 + 0.3) / 2)
    assert use["capacity_counts"] == {"8": 2, "16": 0, "32": 2}
    assert use["mean_capacity"] == 20


def test_the_same_certain_choice_shifts_without_spread():
    use = capacity_use([32] * 5, torch.eye(3)[[2] * 5], PRIOR, SUPPORT)
    assert use["q_shift"] == pytest.approx(0.8)
    assert use["q_spread"] == 0


@given(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), st.lists(st.floats(0.01, 1), min_size=4, max_size=4))
def test_total_variation_is_the_largest_difference_of_an_event_s_probability(first, second):
    p, q = torch.tensor(first, dtype=torch.float64), torch.tensor(second, dtype=torch.float64)
    p, q = p / p.sum(), q / q.sum()
    events = torch.tensor([[(event >> c) & 1 for c in range(4)] for event in range(16)], dtype=torch.float64)
    assert total_variation(p, q).item() == pytest.approx((events @ (p - q)).max().item())
