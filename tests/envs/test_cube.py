"""Cube is OGBench's: same control and physics, same picture with a purple gripper; its data are reproducible."""

import math
import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from alewm.envs import cube
from alewm.envs.cube import CubeVectorEnv
from alewm.envs.cube_control import CUBE_POSITION, CUBE_QUATERNION
from alewm.envs.offscreen import mujoco
from alewm.envs.recording import episode_stream
from alewm.errors import InputError
from alewm_lab.benchmarks.published_data import cube_figures


@pytest.fixture(scope="module")
def reference() -> Iterator[Any]:
    """OGBench's own environment, built by OGBench alone."""
    from ogbench.manipspace.envs.cube_env import CubeEnv  # here, as it looks for a back end when it is imported

    env = CubeEnv("single", ob_type="states", mode="data_collection", visualize_info=False, width=224, height=224)
    env.reset(seed=0)
    yield env
    env._renderer._gl_context.make_current()  # closing deletes from whichever context is current
    env._renderer.close()


def load(env: Any, row: dict[str, np.ndarray]) -> None:
    mujoco.mj_resetData(env.model, env.data)
    env.set_state(row["qpos"], row["qvel"])


def start(number: int = 0) -> dict[str, np.ndarray]:
    return cube.sample_start(episode_stream(1, number))


def moved(row: dict[str, np.ndarray], position: tuple[float, float, float]) -> dict[str, np.ndarray]:
    qpos = row["qpos"].copy()
    qpos[CUBE_POSITION] = position
    return {**row, "qpos": qpos}


def batch(*rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.stack([each[name] for each in rows]) for name in rows[0]}


def test_the_arm_moves_as_ogbenchs_does(reference):
    world, row = cube.CubeSimulator(), start()
    load(reference, row)
    world.load(row)
    other = cube.CubeSimulator()  # shares the scene, and must not be felt
    for action in np.random.default_rng(0).uniform(-1.5, 1.5, (30, 5)):
        _, _, _, _, info = reference.step(action)
        world.advance(action, None)
        other.advance(-action, None)
        np.testing.assert_array_equal(world.state()["qpos"], reference.data.qpos)
        np.testing.assert_array_equal(world.state()["qvel"], reference.data.qvel)
    target = info["privileged/target_block_pos"], cube.turned(info["privileged/target_block_yaw"][0])
    found = world.recorded(*target)
    np.testing.assert_allclose(found.pop("observation"), reference.compute_observation(), rtol=0, atol=1e-12)
    for name, values in info.items():
        if name not in ("privileged/target_task", "success"):
            np.testing.assert_allclose(found.pop(name.replace("/", "_")), values, rtol=0, atol=1e-12, err_msg=name)
    assert not found, "no column beyond OGBench's"


def test_worlds_that_step_side_by_side_move_as_each_by_itself():
    rows = [start(number) for number in range(5)]
    envs, alone = CubeVectorEnv(5), [cube.CubeSimulator() for _ in rows]
    envs.reset_to(batch(*rows), batch(*rows[::-1]))
    for world, row in zip(alone, rows, strict=True):
        world.load(row)
    active = torch.tensor([True, True, False, True, True])
    for actions in np.random.default_rng(1).uniform(-1, 1, (8, 5, 5)).astype(np.float32):
        envs.step(torch.from_numpy(actions), active)
        for b in active.nonzero().flatten().tolist():
            alone[b].advance(actions[b].astype(np.float64), None)
    for name, values in envs.state().items():
        np.testing.assert_array_equal(values.numpy(), [world.state()[name] for world in alone])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_worlds_step_in_a_forked_process_too():
    """As Gymnasium's asynchronous environments do, after a step in their parent."""
    envs, still = CubeVectorEnv(2), torch.zeros(2, 5)
    envs.step(still, torch.ones(2, dtype=torch.bool))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        envs.step(still, torch.ones(2, dtype=torch.bool))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_picture_is_ogbenchs_with_a_purple_gripper(reference):
    world, row = cube.CubeSimulator(), start(1)
    world.load(row)
    load(reference, row)
    black = reference.render(camera="front_pixels")
    share = (black != world.draw()).any(-1).mean()
    assert 0.001 < share < 0.1, "something near the gripper differs"
    for material in ("black", "pad_gray"):
        reference.model.material(f"ur5e/robotiq/{material}").rgba = (0.61, 0.28, 0.82, 1)
    np.testing.assert_array_equal(reference.render(camera="front_pixels"), world.draw())


def test_what_follows_a_row_does_not_depend_on_what_came_before():
    fresh, used = cube.CubeSimulator(), cube.CubeSimulator()
    for _ in range(5):
        used.advance(np.array([1.0, -1.0, -1.0, 0.5, 1.0]), None)
    for world in (fresh, used):
        world.load(start())
        world.advance(np.full(5, 0.3), None)
    for name, values in fresh.columns(start(2)).items():
        np.testing.assert_array_equal(used.columns(start(2))[name], values, err_msg=name)


def test_the_goal_is_reached_up_to_and_including_four_centimetres():
    on_the_floor = moved(start(), (0.4, 0.1, 0.0))
    limit = moved(start(), (0.4, 0.1, 0.04))
    beyond = moved(start(), (0.4, 0.1, math.nextafter(0.04, 1)))
    envs = CubeVectorEnv(2)
    envs.reset_to(batch(limit, beyond), batch(on_the_floor, on_the_floor))
    assert envs.success().tolist() == [True, False]


def test_a_start_has_the_gripper_above_the_workspace_pointing_down():
    for number in range(5):
        world, row = cube.CubeSimulator(), start(number)
        world.load(row)
        found = world.columns(row)
        np.testing.assert_allclose(found["proprio_effector_pos"], cube.START_EFFECTOR, atol=2e-4)
        assert found["proprio_gripper_opening"] == 0
        assert (np.array(cube.CUBE_AREA[0]) <= row["qpos"][14:16]).all()
        assert (row["qpos"][14:16] <= np.array(cube.CUBE_AREA[1])).all()
        assert row["qpos"][16] == 0.02


def test_a_cube_without_orientation_is_refused():
    rows = batch(start())
    rows["qpos"][0, CUBE_QUATERNION] = 0
    with pytest.raises(InputError, match=r"of the state must hold a quaternion of the cube .* episode 0 is zero"):
        CubeVectorEnv(1).set_state(rows)


def test_an_episode_depends_on_its_seed_and_number_alone_and_disturbs_nobody():
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = cube.collect_one_goal(3, [4, 1], draw_every=0, max_steps=30)
    np.testing.assert_array_equal(np.random.get_state()[1], expected)  # noqa: NPY002
    np.random.seed(6)  # noqa: NPY002
    (again,) = cube.collect_one_goal(3, [1], draw_every=0, max_steps=40)
    for name in ("qpos", "qvel", "action", "observation"):
        rows = slice(0, 30 if name == "action" else 31)
        np.testing.assert_array_equal(second[name][rows], again[name][rows], err_msg=name)
    assert (first["qpos"] != second["qpos"]).any()


def test_both_behaviours_bring_the_cube_to_the_target_and_one_goes_on_to_others():
    (same,), (other,) = (
        list(collect(0, [0], draw_every=0)) for collect in (cube.collect_one_goal, cube.collect_new_goals)
    )
    targets = np.unique(same["privileged_target_block_pos"], axis=0)
    assert len(targets) == 1
    assert 2 <= len(np.unique(other["privileged_target_block_pos"], axis=0)) <= 4
    planned_again = (other["privileged_target_block_pos"] != targets[0]).any(1).argmax()
    np.testing.assert_array_equal(same["qpos"][:planned_again], other["qpos"][:planned_again])
    for episode in (same, other):
        assert episode["success"][planned_again - 1]
        assert not episode["success"][0]
        np.testing.assert_array_equal(episode["reward"][1:], episode["success"][1:].astype(float))
        assert episode["truncated"].tolist() == [False] * 200 + [True]


def test_episodes_are_like_the_published_ones():
    episodes = list(cube.collect_one_goal(0, range(6), draw_every=0))
    assert all(len(episode["action"]) == 201 for episode in episodes)
    actions, found = [episode["action"][:-1] for episode in episodes], cube_figures(episodes)
    assert np.concatenate(actions).std(0) == pytest.approx([0.30, 0.40, 0.65, 0.40, 0.25], rel=0.25)
    assert np.abs([taken[0] for taken in actions]).max() < 0.5, "a plan begins where the gripper is, but for its noise"
    assert found["cube_moving_share"] == pytest.approx(0.42, abs=0.05)
    assert found["cube_within_4_cm_25_steps_share"] == pytest.approx(0.41, abs=0.1)
