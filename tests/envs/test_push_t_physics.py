"""Push-T's dynamics: the pusher's response, quasi-static and frictionless pushing, loading, walls, success."""

import itertools
import math

import numpy as np
import pymunk
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alewm.envs.push_t import physics
from alewm.envs.push_t.env import PushTSimulator, is_free, sample_state
from alewm.envs.push_t.physics import AT_REST, PushTWorld, goal_distance

FAR_BLOCK = (350.0, 350.0, 0.0)


def world(pusher=(100.0, 100.0), block=FAR_BLOCK, velocity=(0.0, 0.0)) -> PushTWorld:
    return PushTWorld(np.array([*pusher, *block, *velocity]))


def walk(of: PushTWorld, action, steps: int) -> np.ndarray:
    states = [of.state()]
    for _ in range(steps):
        of.step(*action)
        states.append(of.state())
    return np.array(states)


def test_from_rest_a_step_covers_29_6_percent_of_the_command_and_40_7_in_the_long_run():
    x = walk(world(), (0.2, 0.0), 12)[:, 0]
    covered = np.diff(x) / 20
    assert covered[0] == pytest.approx(0.296, abs=5e-4)
    assert covered[-1] == pytest.approx(0.407, abs=5e-4)
    assert walk(world(), (0.2, 0.0), 12)[-1, 5] == pytest.approx(74.3, abs=0.05)


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-300, 300))
def test_the_pusher_obeys_its_recurrence(action_x, action_y, velocity_x):
    of = world(velocity=(velocity_x, 0.0))
    x, y, _, _, _, vx, vy = of.state()
    target_x, target_y = x + 100 * action_x, y + 100 * action_y
    for _ in range(10):
        vx, vy = 0.8 * vx + (target_x - x), 0.8 * vy + (target_y - y)
        x, y = x + 0.01 * vx, y + 0.01 * vy
    of.step(action_x, action_y)
    np.testing.assert_allclose(of.state()[[0, 1, 5, 6]], [x, y, vx, vy], rtol=1e-9, atol=1e-9)


def test_the_block_is_the_published_one():
    of = world(block=(256.0, 200.0, 0.7))
    (block,) = (body for body in of.space.bodies if body.body_type == pymunk.Body.DYNAMIC)
    assert (block.mass, block.moment, tuple(block.center_of_gravity)) == (1.0, 3000.0, (0.0, 45.0))
    bar = pymunk.moment_for_poly(1.0, physics.BAR)
    assert 2 * bar == pytest.approx(block.moment)
    assert {shape.friction for shape in of.space.shapes} == {0.0}
    assert {shape.elasticity for shape in of.space.shapes} == {0.0}
    corners = {tuple(corner) for shape in block.shapes for corner in shape.get_vertices()}
    assert corners == set(physics.BAR) | set(physics.STEM)
    assert set(physics.OUTLINE) <= corners
    assert (of.space.damping, tuple(of.space.gravity), of.space.iterations) == (0.0, (0.0, 0.0), 10)


def test_the_block_moves_only_while_it_is_pushed():
    of = world(pusher=(256.0, 170.0), block=(256.0, 200.0, 0.0))
    pushed = walk(of, (0.0, 0.2), 8)
    assert pushed[-1, 3] > 230
    assert pushed[-1, 4] % (2 * math.pi) == pytest.approx(0, abs=1e-6), "pushed through its centre it does not turn"
    of.step(0.0, -0.5)
    left = of.state()
    states = walk(of, (0.0, -0.2), 5)
    np.testing.assert_allclose(states[:, 2:5], np.broadcast_to(left[2:5], (6, 3)), atol=1e-9)


@pytest.mark.parametrize(("pusher_x", "sign"), [(210.0, -1), (302.0, 1)])
def test_a_push_off_the_centre_turns_the_block(pusher_x, sign):
    of = world(pusher=(pusher_x, 170.0), block=(256.0, 200.0, 0.0))
    turned = physics.wrapped(walk(of, (0.0, 0.2), 8)[-1, 4])
    assert turned * sign > 0.2


def test_contacts_are_frictionless():
    """Sliding along the bar's outer edge while pressing on it never drags the block along."""
    of = world(pusher=(240.0, 184.0), block=(256.0, 200.0, 0.0))
    dragged = walk(of, (0.3, 0.05), 3)
    assert dragged[-1, 0] > dragged[0, 0] + 20
    for before, after in itertools.pairwise(dragged):
        middle = (before[4] + after[4]) / 2
        along = np.array([math.cos(middle), math.sin(middle)])
        centres = [
            state[2:4] + physics.rotation(state[4]) @ np.array(physics.CENTRE_OF_GRAVITY) for state in (before, after)
        ]
        assert abs((centres[1] - centres[0]) @ along) < 0.5


def test_walls_stop_the_block_and_not_the_pusher():
    squeezed = walk(world(pusher=(256.0, 330.0), block=(256.0, 360.0, 0.0)), (0.0, 0.1), 30)
    lowest = [physics.placed(np.array(physics.OUTLINE), s[2:4], s[4])[:, 1].max() for s in squeezed]
    assert max(lowest) > 500, "the block reaches the wall"
    assert max(lowest) < 510, "and is held there: it gives way sideways"
    free = world(pusher=(40.0, 256.0))
    assert walk(free, (-1.0, 0.0), 5)[-1, 0] < -100


def test_actions_are_not_clipped():
    assert walk(world(), (2.0, 0.0), 1)[-1, 0] - 100 == pytest.approx(2 * (walk(world(), (1.0, 0.0), 1)[-1, 0] - 100))


def test_loading_lets_a_substep_pass():
    moving = world(velocity=(100.0, -50.0)).state()
    np.testing.assert_allclose(moving, [101.0, 99.5, *FAR_BLOCK, 100.0, -50.0], atol=1e-9)
    overlapping = world(pusher=(256.0, 195.0), block=(256.0, 200.0, 0.0))
    overlapping.step(0.0, 0.0)
    assert overlapping.state()[3] > 200.5, "overlaps are pushed apart"


def test_loading_places_the_origin_whatever_the_angle():
    for angle in np.linspace(0, 6, 7):
        np.testing.assert_allclose(world(block=(300.0, 280.0, angle)).state()[2:5], [300, 280, angle], atol=1e-9)


def test_what_follows_a_load_is_a_function_of_the_row_alone():
    """The block's leftover velocity and the solver's memory of contacts are not carried into the next episode."""
    start = {"state": np.array([256.0, 184.0, 256.0, 200.0, 0.3, 0.0, 80.0])}
    fresh, used = PushTSimulator(), PushTSimulator()
    used.load({"state": np.array([256.0, 184.0, 256.0, 200.0, 0.3, 0.0, 500.0])})
    for _ in range(3):
        used.advance(np.array([0.1, 0.9]), start)
    for simulator in (fresh, used):
        simulator.load(start)
    for _ in range(5):
        for simulator in (fresh, used):
            simulator.advance(np.array([0.05, 0.3]), start)
        np.testing.assert_array_equal(fresh.state()["state"], used.state()["state"])


def test_a_state_without_contact_continues_exactly_but_for_rounding():
    first = world(velocity=(0.0, 0.0))
    walk(first, (0.1, 0.2), 3)
    second = PushTWorld(first.state())
    drift = 0.01 * first.state()[5:]
    np.testing.assert_allclose(second.state()[:2], first.state()[:2] + drift, atol=1e-9)


def test_until_the_first_action_the_loaded_row_is_reported():
    simulator, row = PushTSimulator(), {"state": np.array([100.0, 100.0, *FAR_BLOCK, 300.0, 0.0])}
    simulator.load(row)
    np.testing.assert_array_equal(simulator.state()["state"], row["state"])
    np.testing.assert_array_equal(simulator.columns(row)["proprio"], [100, 100, 300, 0])
    assert simulator.distance(row) == pytest.approx(3 / 20), "the world itself has drifted"
    simulator.advance(np.zeros(2), row)
    assert simulator.state()["state"][0] > 103


def test_the_angle_stays_in_one_turn():
    of = world(block=(256.0, 200.0, -0.5))
    assert of.state()[4] == pytest.approx(2 * math.pi - 0.5)
    assert of.block_pose()[2] == pytest.approx(-0.5)


def test_contacts_say_who_touches_the_block():
    assert world().contacts() == []
    corner = world(pusher=(256.0 + 29.8, 200.0 + 44.8), block=(256.0, 200.0, 0.0))
    assert [contact.is_by_pusher for contact in corner.contacts()] == [True, True]
    at_wall = world(block=(256.0, 6.5, 0.0)).contacts()
    assert at_wall
    assert not any(contact.is_by_pusher for contact in at_wall)


numbers = st.floats(0, 500)
states = st.tuples(numbers, numbers, numbers, numbers, st.floats(0, 6.28), st.just(0.0), st.just(0.0)).map(np.array)


@given(states, states)
def test_success_is_less_than_20_pixels_over_both_places_and_less_than_20_degrees(state, goal):
    difference = state - goal
    is_near = math.hypot(*difference[:4]) < 20
    is_aligned = math.acos(min(1.0, math.cos(difference[4]))) < math.pi / 9 - 1e-9
    assert (goal_distance(state, goal) < 1) == (is_near and is_aligned)


def test_success_at_its_limits():
    rest = np.array(AT_REST)
    off = [rest + np.array([*(difference / 2 for _ in range(4)), 0, 900, 900]) for difference in (19.99, 20.0)]
    assert [goal_distance(state, rest) < 1 for state in off] == [True, False]
    for angle, expected in ((19.99, True), (20.01, False), (-19.99, True), (340.01, True)):
        turned = rest.copy()
        turned[4] += math.radians(angle)
        assert (goal_distance(turned, rest) < 1) == expected


def test_starts_are_free_and_cover_their_ranges():
    generator = np.random.default_rng(0)
    drawn = np.array([sample_state(generator) for _ in range(400)])
    assert (drawn[:, :2] >= 50).all()
    assert (drawn[:, :2] <= 450).all()
    assert (drawn[:, 2:4] >= 100).all()
    assert (drawn[:, 2:4] <= 400).all()
    assert np.histogram(drawn[:, 4], 6, (0, 2 * math.pi))[0].min() > 30
    assert not drawn[:, 5:].any()
    for state in drawn[:50]:
        assert PushTWorld(state).contacts() == []
    assert not is_free(np.array([256.0, 190.0]), np.array([256.0, 200.0]), 0.0)
    assert not is_free(np.array([50.0, 50.0]), np.array([256.0, 450.0]), 0.0)
