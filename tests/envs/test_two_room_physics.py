"""The batched moves against the rules, one dot at a time and in plain NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alewm.envs import two_room
from alewm.envs.two_room import TwoRoomEnv, TwoRoomVectorEnv
from alewm.errors import InputError

single = np.float32


def scalar_move(position, action):
    """The documented rules, in their order."""
    px, py = (single(number) for number in position)
    ax, ay = (single(min(max(number, -1), 1)) for number in action)
    qx, qy = px + single(5) * ax, py + single(5) * ay
    qx, qy = (min(max(q, single(21)), single(203)) for q in (qx, qy))
    in_door = 33.25 <= qy <= 64.75
    if px < 112:
        if qx > 100 and not in_door:
            qx = single(99.5)
    elif qx < 124 and not in_door:
        qx = single(124.5)
    return np.array([qx, qy], dtype=single)


def moved(position, action):
    return two_room.move(torch.tensor([position]), torch.tensor([action]))[0].tolist()


def test_long_random_walks_agree_with_the_scalar_rules():
    generator = np.random.default_rng(0)
    positions = generator.uniform(14, 209, (300, 2)).astype(single)
    positions[:100, 0] = generator.uniform(95, 130, 100)
    batch = torch.from_numpy(positions.copy())
    for _ in range(60):
        actions = generator.uniform(-1.5, 1.5, (300, 2)).astype(single)
        batch = two_room.move(batch, torch.from_numpy(actions))
        positions = np.stack([scalar_move(*pair) for pair in zip(positions, actions, strict=True)])
        np.testing.assert_array_equal(batch.numpy(), positions)


coordinates = st.floats(14, 209, width=32)
pushes = st.floats(-2, 2, width=32)


@given(coordinates, coordinates, pushes, pushes)
def test_any_move_agrees_with_the_scalar_rules_and_stays_inside(x, y, ax, ay):
    landed = moved([x, y], [ax, ay])
    assert landed == scalar_move([x, y], [ax, ay]).tolist()
    assert 21 <= min(landed) <= max(landed) <= 203


@pytest.mark.parametrize(
    ("position", "action", "expected"),
    [
        ([60.0, 120.0], [1.0, -0.5], [65.0, 117.5]),
        ([60.0, 120.0], [7.0, -9.0], [65.0, 115.0]),  # clamped one by one
        ([14.0, 209.0], [0.0, 0.0], [21.0, 203.0]),  # margins are clamped away even by standing still
        ([98.0, 120.0], [1.0, 1.0], [99.5, 125.0]),  # the wall stops x, y slides
        ([126.0, 120.0], [-1.0, 1.0], [124.5, 125.0]),
        ([98.0, 60.0], [1.0, 0.5], [103.0, 62.5]),  # through the door
        ([98.0, 60.0], [1.0, 0.95], [103.0, 64.75]),  # the band's edge is still open
        ([98.0, 60.0], [1.0, 1.0], [99.5, 65.0]),  # only the destination's y counts
        ([98.0, 30.0], [1.0, 1.0], [103.0, 35.0]),
        ([111.0, 62.0], [1.0, 1.0], [99.5, 67.0]),  # thrown out of the doorway on the old side,
        ([113.0, 62.0], [-1.0, 1.0], [124.5, 67.0]),  # also from beyond the middle
        ([112.0, 62.0], [0.0, 1.0], [124.5, 67.0]),  # the middle belongs to the right room
        ([95.0, 120.0], [1.0, 0.0], [100.0, 120.0]),  # touching is not crossing
    ],
)
def test_collisions_one_by_one(position, action, expected):
    assert moved(position, action) == expected


def test_distance_is_euclidean():
    assert two_room.distance(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2)).tolist() == [5.0]


def test_recorded_columns_are_those_of_the_data_files():
    columns = two_room.recorded_columns(torch.tensor([[30.0, 40.0]]), torch.tensor([[60.0, 80.0]]))
    assert {name: values[0].tolist() for name, values in columns.items()} == {
        "proprio": [30, 40],
        "state": [30, 40],
        "goal_state": [60, 80],
        "observation": [30, 40, 60, 80, 112, 49, 0, 0, 0, 0],
        "distance_to_target": 50,
    }
    assert {values.dtype for values in columns.values()} == {torch.float32}


def test_positions_outside_the_frame_are_refused():
    envs = TwoRoomVectorEnv(2, image_size=8)
    inside = torch.tensor([[14.0, 209.0], [112.0, 112.0]])
    envs.reset_to({"proprio": inside}, {"proprio": inside})
    with pytest.raises(
        InputError, match=r"'proprio' of the goal must lie inside the frame, .* 14 to 209, got \[60.0, 9"
    ):
        envs.reset_to({"proprio": inside.flip(0)}, {"proprio": torch.tensor([[60.0, 60.0], [60.0, 9.0]])})
    assert torch.equal(envs.state()["proprio"], inside)


def test_targets_are_in_the_other_room():
    env = TwoRoomEnv(image_size=8)
    for seed in range(30):
        info = env.reset(seed=seed)[1]
        assert (info["proprio"][0] < 112) != (info["goal_state"][0] < 112)
