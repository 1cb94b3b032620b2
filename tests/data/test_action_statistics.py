import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alewm.data.action_statistics import ActionStatistics
from alewm.data.splits import Splits
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from toy_episodes import write_tape


def test_the_statistics_are_mean_and_population_std_of_complete_rows() -> None:
    actions = np.array([[1.0, 0.0], [3.0, 0.0], [np.nan, 5.0], [5.0, 0.0]], dtype=np.float32)
    statistics = ActionStatistics.fit(actions)
    assert statistics.mean == (3.0, 0.0)
    assert statistics.std == (pytest.approx(np.sqrt(8 / 3)), 1e-8)


def test_held_out_actions_have_no_part_in_the_statistics(tmp_path: Path) -> None:
    """Row r of a tape has the action (r, -r); the last row of an episode has none."""
    with EpisodeStore.open(write_tape(tmp_path / "a.h5", [10, 20, 30, 40])) as store:
        statistics = ActionStatistics.of_training(
            store, Splits(train=(0, 2), validation=(1,), test=(3,), seed=0, fingerprint="")
        )
    rows = np.concatenate([np.arange(0, 9), np.arange(30, 59)])
    assert statistics.mean == pytest.approx((rows.mean(), -rows.mean()))
    assert statistics.std == pytest.approx((rows.std(), rows.std()))


@given(st.integers(0, 1000))
def test_normalised_actions_have_zero_mean_and_unit_std_and_come_back(seed: int) -> None:
    actions = np.random.default_rng(seed).normal(3, 7, (200, 3)).astype(np.float32)
    statistics = ActionStatistics.fit(actions)
    scores = statistics.normalize(actions)
    np.testing.assert_allclose(scores.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(scores.std(0), 1, atol=1e-5)
    np.testing.assert_allclose(statistics.denormalize(scores), actions, atol=1e-4)
    torch.testing.assert_close(
        statistics.normalize(torch.from_numpy(actions)), torch.from_numpy(scores), atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(
        statistics.denormalize(torch.from_numpy(scores)), torch.from_numpy(actions), atol=1e-4, rtol=1e-5
    )


def test_a_missing_action_becomes_the_mean_action() -> None:
    statistics = ActionStatistics((1.0, 2.0), (3.0, 4.0))
    missing = np.array([[np.nan, 6.0]], dtype=np.float32)
    assert statistics.normalize(missing).tolist() == [[0.0, 1.0]]
    assert statistics.normalize(torch.from_numpy(missing)).tolist() == [[0.0, 1.0]]


def test_they_travel_through_json_to_the_last_bit() -> None:
    statistics = ActionStatistics.fit(np.random.default_rng(0).normal(size=(50, 2)))
    assert ActionStatistics.from_dict(json.loads(json.dumps(statistics.to_dict()))) == statistics


def test_impossible_statistics_are_refused() -> None:
    with pytest.raises(InputError, match="None of the 2 action rows"):
        ActionStatistics.fit(np.full((2, 2), np.nan))
    with pytest.raises(InputError, match="one positive std per dimension"):
        ActionStatistics((0.0,), (0.0,))
