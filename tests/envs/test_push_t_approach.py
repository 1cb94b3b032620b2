"""Ways around the block touch nothing, and pushes begin everywhere along it."""

import itertools
import math

import numpy as np

from alewm.envs.push_t import physics
from alewm.envs.push_t.expert import CLEARANCE, WAY_POINTS, are_clear, path_around_block, sample_push

ALONG = np.linspace(0, 1, 60)[:, None]


def test_distance_to_the_block():
    points = np.array([[0.0, 15.0], [0.0, -10.0], [63.0, 34.0], [45.0, 60.0], [0.0, 130.0], [-25.0, 100.0]])
    np.testing.assert_allclose(physics.distance_to_block(points), [0, 10, 5, 30, 10, 10])


def test_paths_keep_their_distance_and_end_where_they_should():
    generator = np.random.default_rng(0)
    for _ in range(200):
        start, _ = sample_push(generator)
        end, _ = sample_push(generator)
        length, corners = path_around_block(start, end)
        way = np.array([start, *corners])
        np.testing.assert_array_equal(way[-1], end)
        assert math.isclose(length, np.linalg.norm(np.diff(way, axis=0), axis=1).sum())
        for first, second in itertools.pairwise(way):
            gaps = physics.distance_to_block(first + (second - first) * ALONG)
            assert gaps.min() > physics.PUSHER_RADIUS, "the pusher never touches the block"


def test_no_path_is_shorter_than_the_direct_way_nor_longer_than_all_around():
    generator = np.random.default_rng(1)
    for _ in range(100):
        start, end = generator.uniform(-250, 350, (2, 2))
        if physics.distance_to_block(np.stack((start, end))).min() < CLEARANCE:
            continue
        length, corners = path_around_block(start, end)
        assert np.linalg.norm(end - start) - 1e-9 <= length < np.linalg.norm(end - start) + 600
        if bool(are_clear(start, end)):
            assert len(corners) == 1


def test_the_way_points_surround_the_block():
    assert len(WAY_POINTS) == 8
    np.testing.assert_allclose(physics.distance_to_block(WAY_POINTS).min(), CLEARANCE)
    np.testing.assert_allclose(sorted(WAY_POINTS[:, 0]), sorted(-WAY_POINTS[:, 0]))


def test_pushes_begin_just_off_every_face_and_lead_into_the_block():
    generator = np.random.default_rng(2)
    pushes = [sample_push(generator) for _ in range(600)]
    points = np.array([point for point, _ in pushes])
    gaps = physics.distance_to_block(points)
    assert gaps.min() > physics.PUSHER_RADIUS
    assert gaps.max() < CLEARANCE + 3
    ahead = np.array([point + 25 * np.array([math.cos(angle), math.sin(angle)]) for point, angle in pushes])
    assert (physics.distance_to_block(ahead) < physics.PUSHER_RADIUS).mean() > 0.95
    x, y = points.T
    for is_there in (y < 0, y > 120, x > 60, x < -60, (y > 30) & (x > 0) & (x < 60), (y > 30) & (x < 0) & (x > -60)):
        assert is_there.sum() > 15
