"""Figures of Push-T data, on episodes whose figures are known."""

import numpy as np
import pytest

from alewm.envs.push_t import physics
from alewm.envs.push_t.physics import PushTWorld
from alewm_lab.benchmarks.published_data import (
    FACES,
    PUBLISHED,
    block_displacements,
    is_moving,
    push_t_figures,
    touched_faces,
    turns,
)


def states(num_rows: int, **columns) -> np.ndarray:
    state = np.zeros((num_rows, 7))
    for place, name in enumerate(("x", "y", "block_x", "block_y", "angle", "vx", "vy")):
        state[:, place] = columns.get(name, 256.0 if place < 4 else 0.0)
    return state


def test_displacements_and_motion():
    state = states(41, block_x=200 + 2.0 * np.minimum(np.arange(41), 20))
    np.testing.assert_allclose(block_displacements(state), [40 - 2 * t for t in range(16)])
    assert is_moving(state).tolist() == [True] * 20 + [False] * 20
    assert len(block_displacements(state[:25])) == 0


def test_turns_do_not_jump_at_the_full_turn():
    np.testing.assert_allclose(
        turns(states(4, angle=np.array([6.2, 0.1, 6.1, 6.0]))), [0.1832, -0.2832, -0.1], atol=1e-4
    )


@pytest.mark.parametrize(
    ("place", "face"),
    [
        ((-30.0, -14.0), "bar outside"),
        ((73.0, 10.0), "bar ends"),
        ((-74.0, 25.0), "bar ends"),
        ((45.0, 44.0), "bar inside"),
        ((-29.0, 90.0), "stem sides"),
        ((5.0, 134.0), "stem end"),
        ((29.9, 44.9), "concave corners"),
        ((-29.9, 44.9), "concave corners"),
    ],
)
@pytest.mark.parametrize("angle", [0.0, 2.0, 4.5])
def test_faces_are_told_apart(place, face, angle):
    origin = np.array([256.0, 250.0])
    pusher = physics.placed(np.array([place]), origin, angle)[0]
    world = PushTWorld(np.array([*pusher, *origin, angle, 0, 0]))
    num_contacts = np.array([len(world.contacts())])
    assert num_contacts[0] > 0
    assert FACES[touched_faces(world.state()[None], num_contacts)[0]] == face


def test_figures_of_an_episode():
    rows = 51
    block_x = np.where(np.arange(rows) < 26, 256.0, 300.0)
    angle = np.linspace(0, 2 * np.pi, rows, endpoint=False)
    episode = {"state": states(rows, block_x=block_x, angle=angle, x=100.0, vx=np.arange(rows))}
    episode["n_contacts"] = (np.arange(rows) % 2).astype(np.int64)
    found = push_t_figures([episode])
    assert found["contact_share"] == 0.5
    assert found["block_25_steps_mean"] == pytest.approx(44 * 25 / 26)
    assert found["block_25_steps_below_5_share"] == pytest.approx(1 / 26)
    assert found["turning_right_share"] == 1
    assert found["near_centre_share"] == 1
    assert found["near_border_share"] == 0
    assert found["least_share_of_30_degrees"] == pytest.approx(4 / 51)
    assert found["pusher_velocity_std"] == pytest.approx([np.arange(rows).std(), 0])


def test_the_border_counts():
    assert push_t_figures([{"state": states(30, block_x=40.0)}])["near_border_share"] == 1


def test_files_without_contacts_lack_only_those_figures():
    assert push_t_figures([]) == {}
    found = push_t_figures([{"state": states(20)}])
    assert not any(name.startswith("contact") or name.startswith("block_25") for name in found)
    assert found["block_moving_share"] == 0
    assert set(PUBLISHED["push-t"]) & set(found)
