"""The weak Push-T policy: its figures, and episodes that are functions of their number."""

import numpy as np
import pytest

from alewm.data.inspection import file_figures
from alewm_lab.benchmarks.published_data import push_t_figures
from alewm_lab.benchmarks.replay import weak_episodes


def test_the_weak_policy_is_the_public_one():
    """Its figures, measured on the public collector: std 0.5, no memory, fast, the block moving in 31 % of steps."""
    episodes = list(weak_episodes(0, range(40)))
    found = {**file_figures(episode["action"] for episode in episodes), **push_t_figures(episodes)}
    np.testing.assert_allclose(found["action_std"], 0.5, atol=0.02)
    np.testing.assert_allclose(found["action_autocorrelation"], 0, atol=0.08)
    np.testing.assert_allclose(found["pusher_velocity_std"], 186, atol=8)
    assert found["block_moving_share"] == pytest.approx(0.31, abs=0.04)
    assert found["length_min"] == found["length_max"] == 101


def test_weak_episodes_are_a_function_of_their_number():
    first, second = (list(weak_episodes(2, indices))[-1] for indices in ([3], [0, 3]))
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])
    assert np.abs(first["action"][:-1]).max() <= 1
