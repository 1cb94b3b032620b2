"""The fast drawing against the definition, evaluated for every pixel of every frame."""

import math

import numpy as np
import pytest
import torch

from alewm.envs.two_room import PATCH_RADIUS, TwoRoomRenderer, paste_by_index, paste_by_slices
from alewm.resize import area_downsample

SIZE = 224


def arena():
    """White, black wall with a door, black frame; float32 [224, 224, 3]."""
    image = np.full((SIZE, SIZE, 3), 255, np.float32)
    for y in range(SIZE):
        for x in range(SIZE):
            in_wall = 107 <= x <= 117 and not 35 <= y <= 63
            in_frame = any(10 <= number <= 13 or 210 <= number <= 213 for number in (x, y))
            if in_wall or in_frame:
                image[y, x] = 0
    return image


ARENA = arena()


def alpha_of(px, py):
    y, x = np.mgrid[:SIZE, :SIZE].astype(np.float64)
    alpha = np.exp(-((x - px) ** 2 + (y - py) ** 2) / (2 * 7**2))
    return (alpha / alpha.max()).astype(np.float32)


def drawn_in_full(px, py):
    alpha = alpha_of(px, py)[..., None]
    red = np.array([255, 0, 0], np.float32)
    return (ARENA * (np.float32(1) - alpha) + red * alpha).astype(np.uint8)


def positions(count, seed=0):
    generator = np.random.default_rng(seed)
    return generator.uniform(14, 209, (count, 2)).astype(np.float32)


CORNERS = [(14, 14), (209, 209), (14, 209), (209, 14), (112, 49), (112, 150), (99.5, 100), (124.5, 40.25)]
HALVES = [(50.5, 60.5), (51.5, 61.5), (20.5, 200.5), (111.5, 49.5), (14.5, 208.5), (60.4999962, 60.5000038)]


@pytest.mark.parametrize("where", [positions(150), CORNERS, HALVES], ids=["random", "corners", "halves"])
def test_the_patch_gives_the_bytes_of_the_whole_drawing(where):
    where = np.array(where, np.float32)
    frames = TwoRoomRenderer()(torch.from_numpy(where)).numpy()
    for frame, (px, py) in zip(frames, where.astype(np.float64), strict=True):
        np.testing.assert_array_equal(frame, drawn_in_full(px, py))


def test_the_patch_radius_is_enough_and_not_one_pixel_too_many():
    """On white the dot shows while 1 - alpha is below 1 in float32: out to 41 pixels at some offsets, 42 at none."""
    touched = []
    for offset in np.linspace(-0.5, 0.5, 41):
        changed = (drawn_in_full(60 + offset, 112 + offset / 3) != ARENA).any(-1)
        rows, columns = changed.nonzero()
        touched += [np.abs(columns - 60).max(), np.abs(rows - 112).max()]
    assert max(touched) == PATCH_RADIUS
    reach = 2 * 7**2 * 25 * math.log(2)
    assert PATCH_RADIUS**2 - PATCH_RADIUS < reach < (PATCH_RADIUS + 1) ** 2 - (PATCH_RADIUS + 1)


def test_the_documented_geometry():
    (frame,) = TwoRoomRenderer()(torch.tensor([[60.0, 120.0]])).numpy()
    assert frame[120, 60].tolist() == [255, 0, 0]
    assert frame[5, 5].tolist() == [255, 255, 255]
    assert frame[150, 112].tolist() == [0, 0, 0]
    wall = (frame[:, 112] == 0).all(-1)
    assert wall.nonzero()[0].tolist() == [*range(35), *range(64, SIZE)]
    assert (frame[20] == 0).all(-1).nonzero()[0].tolist() == [*range(10, 14), *range(107, 118), *range(210, 214)]


def test_the_brightest_pixel_is_pure_red_at_any_fraction():
    frames = TwoRoomRenderer()(torch.from_numpy(positions(64)))
    is_pure = (frames == torch.tensor([255, 0, 0], dtype=torch.uint8)).all(-1)
    assert bool(is_pure.flatten(1).any(1).all())


@pytest.mark.parametrize("size", [224, 64, 56])
def test_a_frame_does_not_depend_on_its_batch(size):
    draw = TwoRoomRenderer(size)
    where = torch.from_numpy(positions(70))
    frames = draw(where)
    assert torch.equal(torch.cat([draw(where[i : i + 1]) for i in range(70)]), frames)
    assert torch.equal(draw(where.flip(0)), frames.flip(0))
    assert torch.equal(torch.cat([draw(part) for part in where.split(13)]), frames)


def test_an_empty_batch_gives_no_frames():
    assert TwoRoomRenderer(32)(torch.empty(0, 2)).shape == (0, 32, 32, 3)


@pytest.mark.parametrize("size", [8, 32, 56, 64, 100, 112, 223])
def test_small_images_are_area_averages_of_the_native_one(size):
    where = torch.from_numpy(np.array([*positions(20), *CORNERS, *HALVES], np.float32))
    assert torch.equal(TwoRoomRenderer(size)(where), area_downsample(TwoRoomRenderer()(where), size))


def test_both_ways_of_pasting_agree():
    generator = torch.Generator().manual_seed(0)
    patches = torch.randint(0, 256, (5, 9, 9, 3), dtype=torch.uint8, generator=generator)
    row, column = torch.randint(0, 30 - 9 + 1, (2, 5), generator=generator)
    sliced, indexed = torch.zeros(2, 5, 30, 30, 3, dtype=torch.uint8)
    paste_by_slices(sliced, patches, row, column)
    paste_by_index(indexed, patches, row, column)
    assert torch.equal(sliced, indexed)
    assert int(sliced.sum(dtype=torch.int64)) == int(patches.sum(dtype=torch.int64))


def test_arithmetic_in_single_precision_alone_differs_by_rounding_only():
    """What a drawing with a float32 exponential would give: at most one level, on few pixels, hardly outside red."""
    where = positions(10, seed=3)
    frames = TwoRoomRenderer()(torch.from_numpy(where)).numpy().astype(int)
    y, x = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    for frame, (px, py) in zip(frames, where, strict=True):
        alpha = np.exp(-((x - px) ** 2 + (y - py) ** 2) / np.float32(98))
        alpha = (alpha / alpha.max())[..., None]
        single = (ARENA * (1 - alpha) + np.array([255, 0, 0], np.float32) * alpha).astype(np.uint8)
        difference = np.abs(frame - single)
        assert difference.max() <= 1
        assert (difference > 0).mean() < 2e-3
        assert (difference[..., 1:] > 0).mean() < 1e-4
