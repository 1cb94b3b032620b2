"""What one frame shows of a state: angles have no jump and no second value, and every task's columns have it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alewm.envs.registry import OUR_TASKS, get_task
from alewm.envs.task import Visible, all_of, readings


@given(st.floats(-10, 10), st.integers(1, 4), st.integers(-3, 3))
def test_what_looks_the_same_reads_the_same(angle, alike_per_turn, turns):
    visible = Visible("yaw", alike_per_turn=alike_per_turn)
    here, there = visible.read(np.array([angle, angle + turns * 2 * np.pi / alike_per_turn])), visible.names
    assert len(here) == len(there) == 2
    for values in here:
        assert values[0] == pytest.approx(values[1], abs=1e-9)


@given(st.floats(0, 6.28), st.integers(1, 4))
def test_angles_that_look_different_read_differently(angle, alike_per_turn):
    half = np.pi / alike_per_turn
    cosine, sine = Visible("yaw", alike_per_turn=alike_per_turn).read(np.array([angle, angle + half]))
    assert np.hypot(np.diff(cosine), np.diff(sine)) == pytest.approx(2)


def test_readings_have_the_names_of_their_columns():
    columns = {"qpos": np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), "yaw": np.array([0.0, np.pi / 4])}
    found = readings([*all_of("qpos", (0, 2)), Visible("yaw", alike_per_turn=4)], columns)
    assert list(found) == ["qpos[0]", "qpos[2]", "cos 4 yaw[0]", "sin 4 yaw[0]"]
    assert found["qpos[2]"].tolist() == [3.0, 6.0]
    np.testing.assert_allclose(found["cos 4 yaw[0]"], [1.0, -1.0])
    assert Visible("qpos", 1, alike_per_turn=1).names == ("cos qpos[1]", "sin qpos[1]")


@pytest.mark.parametrize("name", OUR_TASKS)
def test_recorded_episodes_have_what_their_task_calls_visible(name):
    task = get_task(name)
    (episode,) = task.collect_episodes(0, [0], max_steps=60, draw_every=0)
    for label, values in readings(task.visible, episode).items():
        assert values.shape == (len(episode["action"]),)
        assert values.std() > 1e-3, f"{label} says nothing"
