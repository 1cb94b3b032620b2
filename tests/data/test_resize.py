import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alewm.errors import InputError
from alewm.resize import area_downsample


@given(st.integers(0, 1000), st.integers(1, 14))
def test_each_pixel_is_the_rounded_mean_of_its_area(seed: int, size: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    frames = torch.randint(0, 256, (2, 3, 21, 14, 3), dtype=torch.uint8, generator=generator)
    small = area_downsample(frames, size)
    # Every pixel split into size x size equal parts: then each area is a whole block of them.
    fine = frames.repeat_interleave(size, dim=2).repeat_interleave(size, dim=3)
    sums = fine.reshape(2, 3, size, 21, size, 14, 3).long().sum((3, 5))
    area = 21 * 14
    assert torch.equal(small.long(), (2 * sums + area) // (2 * area))


def test_the_batch_does_not_change_a_frame() -> None:
    frames = torch.randint(0, 256, (5, 24, 24, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(area_downsample(frames, 10)[3], area_downsample(frames[3], 10))
    assert area_downsample(frames, 24) is frames


@pytest.mark.parametrize("size", [0, 25])
def test_a_larger_size_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=rf"24 x 24 cannot be averaged down to {size} x {size}; .* from 1 to 24"):
        area_downsample(torch.zeros(24, 24, 3, dtype=torch.uint8), size)
