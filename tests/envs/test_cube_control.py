"""What Cube takes from `cube_control` is what OGBench computes, byte for byte."""

import numpy as np
import pytest

from alewm.envs import cube, cube_control
from alewm.envs.cube import CubeSimulator, scene
from alewm.envs.cube_control import InverseKinematics, LeanPlanOracle, about_z, inverse, observation_of, product, yaw_of

# After ours, which chooses the back end that these look for when they are imported.
from ogbench.manipspace import lie  # isort: skip
from ogbench.manipspace.controllers import DiffIKController  # isort: skip
from ogbench.manipspace.envs.cube_env import CubeEnv as OGBenchCube  # isort: skip
from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle  # isort: skip


def same_bytes(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    return (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


@pytest.fixture(scope="module")
def worlds():
    """Worlds some random actions after a random start, two of them far outside of what an episode visits."""
    found = []
    for number in range(6):
        generator = np.random.default_rng(number)
        world = CubeSimulator()
        world.load(cube.sample_start(generator))
        for action in generator.uniform(-1, 1, (number, 5)) * (1 if number < 4 else 30):
            world.advance(action, None)
        found.append(world)
    return found


def test_rotations_are_those_of_ogbench():
    generator = np.random.default_rng(0)
    for angle in (0.0, -0.0, 1e-6, -3e-6, *generator.uniform(-7, 7, 200)):
        left, right = lie.SO3.from_z_radians(angle), lie.SO3(generator.normal(size=4))
        assert same_bytes(about_z(angle), left.wxyz)
        assert same_bytes(product(about_z(angle), right.wxyz.tolist()), (left @ right).wxyz)
        assert same_bytes(inverse(right.wxyz.tolist()), right.inverse().wxyz)
        assert same_bytes(yaw_of(right.wxyz.tolist()), right.compute_yaw_radians())


def test_a_state_is_described_as_ogbench_does(worlds):
    for world in worlds:
        found = world.known_to_oracle(*cube.sample_pose(np.random.default_rng(1)))
        lent = scene().of(world.data, world._previous)
        expected = OGBenchCube.compute_ob_info(lent)
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert same_bytes(found[name], value), name
        assert same_bytes(observation_of(found), OGBenchCube.compute_observation(lent))


@pytest.mark.parametrize("size", [0.0, 1.0, 30.0, np.nan])
def test_controls_are_those_of_ogbench(worlds, size, monkeypatch):
    assert isinstance(scene()._ik, InverseKinematics)
    theirs = DiffIKController(scene()._ik._model, sites=["attachment_site"])
    for world in worlds:
        action = np.random.default_rng(2).uniform(-1, 1, 5) * size
        before = world.data.ctrl.copy()
        lent = scene().of(world.data, world._previous)
        lent.set_control(action)
        found = world.data.ctrl.copy()
        with monkeypatch.context() as patch:
            patch.setattr(lent, "_ik", theirs)
            OGBenchCube.set_control(lent, action)
        np.testing.assert_array_equal(found, world.data.ctrl, strict=True)  # of NaN the sign may differ
        world.data.ctrl[:] = before


def test_plans_are_those_of_ogbench(worlds):
    for number, world in enumerate(worlds):
        known = world.known_to_oracle(*cube.sample_pose(np.random.default_rng(number)))
        plans = []
        for oracle_class in (LeanPlanOracle, CubePlanOracle):
            oracle = oracle_class(scene(), noise=cube.NOISE, noise_smoothing=cube.NOISE_SMOOTHING)
            with cube.global_numbers(np.random.RandomState(number)):
                oracle.reset(None, known)
            plans.append(oracle._plan)
        assert same_bytes(*plans)


def test_contacts_are_the_same_without_the_middle_phase():
    def columns():
        (episode,) = cube.collect_one_goal(5, [0], max_steps=90, draw_every=0)
        return episode

    options = scene().model.opt
    flags, found = options.disableflags, columns()
    try:
        options.disableflags = flags & ~cube_control.mujoco.mjtDisableBit.mjDSBL_MIDPHASE.value
        assert options.disableflags != flags
        expected = columns()
    finally:
        options.disableflags = flags
    for name, values in expected.items():
        assert same_bytes(found[name], values), name
