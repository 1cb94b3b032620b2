"""Figures of a data file against NumPy on the concatenated columns."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from alewm.data.inspection import file_figures


@given(st.integers(0, 10_000), st.lists(st.integers(1, 40), min_size=1, max_size=6), st.booleans())
def test_the_figures_are_those_of_all_actions_taken(seed: int, lengths: list[int], ends_in_nan: bool) -> None:
    rng = np.random.default_rng(seed)
    episodes = [np.clip(rng.normal(size=(n, 3)), -1, 1).astype(np.float32) for n in lengths]
    if ends_in_nan:
        for episode in episodes:
            episode[-1] = np.nan
    found = file_figures(episodes)
    assert (found["episodes"], found["rows"]) == (len(lengths), sum(lengths))
    assert (found["length_min"], found["length_max"]) == (min(lengths), max(lengths))
    taken = np.concatenate([episode[: -1 if ends_in_nan else None] for episode in episodes]).astype(np.float64)
    if len(taken) == 0:
        assert "action_mean" not in found
        return
    np.testing.assert_allclose(found["action_mean"], taken.mean(0), atol=1e-12)
    np.testing.assert_allclose(found["action_std"], taken.std(0), atol=1e-12)
    assert found["action_saturated_share"] == np.mean(np.abs(taken) == 1)
    assert found["action_outside_share"] == 0


def test_autocorrelation_relates_neighbours_of_one_episode_only() -> None:
    rng = np.random.default_rng(0)
    walks = []
    for _ in range(50):
        walk = [rng.normal(size=2)]
        for _ in range(100):
            walk.append(0.6 * walk[-1] + 0.8 * rng.normal(size=2))
        walks.append(np.array(walk))
    np.testing.assert_allclose(file_figures(walks)["action_autocorrelation"], 0.6, atol=0.03)
    # Episodes of one action each have no neighbours, however alike they are.
    alike = file_figures([np.full((1, 2), number) for number in range(9)])
    assert alike["action_autocorrelation"] == [0, 0]
    left, right = np.array(walks[0][:-1]), np.array(walks[0][1:])
    expected = [np.corrcoef(left[:, d], right[:, d])[0, 1] for d in range(2)]
    np.testing.assert_allclose(file_figures(walks[:1])["action_autocorrelation"], expected)


def test_rows_beyond_the_bounds_are_counted_once_and_components_each() -> None:
    found = file_figures([np.array([[1.0, -2.0], [0.5, 0.5], [1.5, 1.5], [0.0, -1.0]])])
    assert found["action_outside_share"] == 0.5
    assert found["action_saturated_share"] == 5 / 8
