"""Down-sampling is the area average: exact, whatever the size, and linear up to its one rounding."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm.resize import area_downsample, area_weights, granule


def area_average_in_fractions(plane, size):
    """One channel, averaged with rational arithmetic."""
    native = len(plane)
    ratio = Fraction(native, size)

    def overlap(small, large):
        return max(Fraction(0), min((small + 1) * ratio, Fraction(large + 1)) - max(small * ratio, Fraction(large)))

    shares = [[overlap(i, j) for j in range(native)] for i in range(size)]
    means = [
        [
            sum(shares[i][y] * shares[j][x] * plane[y][x] for y in range(native) for x in range(native)) / ratio**2
            for j in range(size)
        ]
        for i in range(size)
    ]
    return [[int(mean + Fraction(1, 2)) for mean in line] for line in means]


@settings(max_examples=15)
@given(size=st.integers(1, 12), seed=st.integers(0, 2**31))
def test_every_size_agrees_with_rational_arithmetic(size, seed):
    frame = torch.randint(0, 256, (12, 12, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    expected = [area_average_in_fractions(frame[..., channel].tolist(), size) for channel in range(3)]
    assert torch.equal(area_downsample(frame, size), torch.tensor(expected, dtype=torch.uint8).permute(1, 2, 0))


@pytest.mark.parametrize("size", [1, 56, 64, 100, 223, 224])
def test_weights_are_integers_that_share_out_every_pixel(size):
    large, small = granule(224, size)
    weights = area_weights(224, large, small)
    assert weights.shape == (size, 224)
    assert torch.equal(weights, weights.round())
    assert bool((weights.sum(1) == large).all())
    assert bool((weights.sum(0) == small).all())


def test_the_native_size_and_flat_images_are_left_alone():
    frames = torch.randint(0, 256, (2, 3, 20, 20, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(area_downsample(frames, 20), frames)
    for level in (0, 127, 255):
        assert bool((area_downsample(torch.full_like(frames, level), 7) == level).all())


def test_halves_round_up():
    frame = torch.tensor([[0, 1], [1, 0]], dtype=torch.uint8)[..., None].expand(2, 2, 3)
    assert area_downsample(frame, 1).flatten().tolist() == [1, 1, 1]
