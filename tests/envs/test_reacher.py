"""Reacher is dm_control's arm: same motion, same picture without the target; success in angles as they are."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from alewm.envs import reacher
from alewm.envs.reacher import ReacherVectorEnv
from alewm.envs.recording import episode_stream
from alewm_lab.benchmarks.published_data import reacher_figures


@pytest.fixture
def reference() -> Iterator[Any]:
    from dm_control.suite import reacher as dm_reacher  # here, as it looks for a back end when it is imported

    arm = dm_reacher.Physics.from_xml_string(*dm_reacher.get_model_and_assets())
    yield arm
    arm.free()


def load(arm: Any, row: dict[str, np.ndarray]) -> None:
    with arm.reset_context():
        arm.data.qpos[:], arm.data.qvel[:] = row["qpos"], row["qvel"]


def row(*numbers: float) -> dict[str, np.ndarray]:
    return {"qpos": np.array(numbers[:2]), "qvel": np.array(numbers[2:] or (0.0, 0.0))}


def batch(*rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.stack([each[name] for each in rows]) for name in rows[0]}


def test_the_arm_moves_as_dm_controls_does(reference):
    """Bit for bit until the wrist meets its limit, where the solver's start differs."""
    arm, stream = reacher.ReacherSimulator(), episode_stream(4, 0)
    start = row(0.0, 2.0, 0.0, 3.0)
    load(reference, start)
    arm.load(start)
    met_limit = False
    for action in stream.uniform(-1, 1, (400, 2)).astype(np.float32):
        arm.advance(action, None)
        reference.set_control(action)
        for _ in range(reacher.ACTION_REPEAT):
            reference.step()
        met_limit |= bool(abs(arm.state()["qpos"][1]) > reacher.WRIST_LIMIT)
        if met_limit:
            np.testing.assert_allclose(arm.state()["qpos"], reference.data.qpos, rtol=0, atol=1e-9)
        else:
            np.testing.assert_array_equal(arm.state()["qpos"], reference.data.qpos)
            np.testing.assert_array_equal(arm.finger(), reference.named.data.geom_xpos["finger", :2])
    assert met_limit


def test_the_picture_is_dm_controls_without_the_target(tmp_path):
    """dm_control draws in a process of its own: it does not expect another to use OpenGL in its thread."""
    code = (
        "import sys, numpy; from alewm.envs import opengl; opengl.choose_back_end()\n"
        "from dm_control.suite import reacher\n"
        "arm = reacher.Physics.from_xml_string(*reacher.get_model_and_assets())\n"
        "with arm.reset_context(): arm.data.qpos[:] = 0.7, -1.9\n"
        "pictures = [arm.render(224, 224, camera_id=0)]; arm.named.model.mat_rgba['target', 'a'] = 0\n"
        "pictures += [arm.render(224, 224, camera_id=0)]; numpy.save(sys.argv[1], pictures); arm.free()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "pictures.npy")], check=True)
    with_target, without = np.load(tmp_path / "pictures.npy")
    arm = reacher.ReacherSimulator()
    arm.load(row(0.7, -1.9))
    np.testing.assert_array_equal(arm.draw(), without)
    assert (with_target != without).any()


def test_the_arm_lies_where_the_camera_should_see_it():
    """365.4 pixels per metre at the arm's height, x to the right and y up from the middle."""
    arm, at = reacher.ReacherSimulator(), row(0.5, 0.8)
    arm.load(at)
    x, y = 112 + 365.4 * reacher.finger_position(at["qpos"]) * (1, -1)
    red, _, blue = arm.draw()[round(y) - 1 : round(y) + 1, round(x) - 1 : round(x) + 1].mean((0, 1))
    assert red > 200 > 120 > blue, "the finger is orange"
    arm.load(row(2.5, 0.8))
    red, _, blue = arm.draw()[round(y), round(x)]
    assert blue > red, "the floor is blue"


def test_a_shoulder_one_turn_away_looks_the_same_and_is_not_the_goal():
    envs = ReacherVectorEnv(2)
    here, turned = row(0.3, 1.0), row(0.3 + 2 * np.pi, 1.0)
    envs.reset_to(batch(here, here), batch(here, turned))
    same, other = envs.render_goal()
    assert torch.equal(same, other)
    assert envs.success().tolist() == [True, False]
    assert envs.distance()[1].item() == pytest.approx(2 * np.pi / 0.05)


@pytest.mark.parametrize(("error", "is_reached"), [((0.0499, -0.0499), True), ((0.0, 0.0501), False)])
def test_both_joints_must_be_within_the_tolerance_whatever_their_speed(error, is_reached):
    envs = ReacherVectorEnv(1)
    envs.reset_to(batch(row(1 + error[0], 2 + error[1], 9.0, -9.0)), batch(row(1, 2)))
    assert envs.success().item() is is_reached


def test_the_second_half_of_a_step_is_left_out_once_the_goal_is_reached():
    arm, halfway, whole = (reacher.ReacherSimulator() for _ in range(3))
    start, action = row(0, 0, 6.0, 0.0), np.array([1.0, -1.0])
    for each in (arm, halfway, whole):
        each.load(start)
    halfway.substep(action)
    whole.advance(action, None)
    assert whole.distance(halfway.state()) > 1, "one physics step carries the arm past the tolerance"
    arm.advance(action, halfway.state())
    np.testing.assert_array_equal(arm.state()["qpos"], halfway.state()["qpos"])


def test_an_arm_restored_at_the_wrists_limit_continues_bit_for_bit():
    arm, restored = reacher.ReacherSimulator(), reacher.ReacherSimulator()
    arm.load(row(0, 2.7, 0, 5.0))
    for step in range(20):
        if step == 8:
            assert arm.state()["qpos"][1] > reacher.WRIST_LIMIT, "the limit must be at work when the state is read"
            restored.load(arm.state())
        arm.advance(np.array([0.2, 1.0]), None)
        if step >= 8:
            restored.advance(np.array([0.2, 1.0]), None)
    np.testing.assert_array_equal(arm.state()["qpos"], restored.state()["qpos"])
    np.testing.assert_array_equal(arm.state()["qvel"], restored.state()["qvel"])


def test_recorded_columns_describe_the_state():
    arm = reacher.ReacherSimulator()
    arm.load(row(0.4, -1.1, 2.0, 3.0))
    found = arm.columns(row(1.0, 0.5))
    np.testing.assert_allclose(found["finger_pos"], reacher.finger_position(np.array([0.4, -1.1])), atol=1e-12)
    np.testing.assert_array_equal(found["target_pos"], reacher.finger_position(np.array([1.0, 0.5])))
    expected = [0.4, -1.1, *(found["target_pos"] - found["finger_pos"]), 2.0, 3.0]
    np.testing.assert_array_equal(found["observation"], np.array(expected, np.float32))


def test_an_episode_depends_on_its_seed_and_number_alone():
    one, two = reacher.collect_episodes(3, [5, 2], draw_every=0)
    (again,) = reacher.collect_episodes(3, [2], draw_every=0)
    (short,) = reacher.collect_episodes(3, [2], max_steps=7, draw_every=0)
    for name, values in again.items():
        np.testing.assert_array_equal(two[name], values)
    np.testing.assert_array_equal(short["qpos"], again["qpos"][:8])
    assert (one["qpos"] != two["qpos"]).any()


def test_episodes_are_those_of_the_published_file():
    """Uniform torques, 201 rows, and columns that say nothing of success; the published figures are near."""
    episodes = list(reacher.collect_episodes(0, range(60), draw_every=0))
    for episode in episodes:
        assert len(episode["action"]) == 201
        assert np.isnan(episode["action"][-1]).all()
        assert np.isnan(episode["success"]).all()
        assert np.isnan(episode["reward"][0])
        assert episode["score"][-1] == episode["reward"][1:].sum() / 1000
        assert not episode["terminated"].any()
        assert episode["truncated"].tolist() == [False] * 200 + [True]
        assert 0.05 <= np.linalg.norm(episode["target_pos"][0]) <= 0.2
    taken = np.concatenate([episode["action"][:-1] for episode in episodes])
    assert taken.std(0) == pytest.approx([3**-0.5] * 2, rel=0.02)
    assert abs(np.corrcoef(taken[:-1, 0], taken[1:, 0])[0, 1]) < 0.03
    found = reacher_figures(episodes)
    assert found["qvel_std"] == pytest.approx([1.35, 2.42], rel=0.1)
    assert found["joint_change_mean"] == pytest.approx([0.040, 0.074], rel=0.1)
    assert found["joint_change_25_steps_mean"] == pytest.approx([0.44, 0.42], rel=0.2)
