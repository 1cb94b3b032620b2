import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm.data.resize import area_downsample
from alewm.errors import InputError


@settings(deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1, 2, 4, 6, 12]))
def test_each_pixel_is_the_rounded_mean_of_its_block(seed: int, size: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    frames = torch.randint(0, 256, (2, 3, 24, 12, 3), dtype=torch.uint8, generator=generator)
    small = area_downsample(frames, size)
    blocks = frames.reshape(2, 3, size, 24 // size, size, 12 // size, 3).double()
    expected = torch.floor(blocks.mean((3, 5)) + 0.5)
    assert torch.equal(small.double(), expected)


def test_the_batch_does_not_change_a_frame() -> None:
    frames = torch.randint(0, 256, (5, 24, 24, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(area_downsample(frames, 8)[3], area_downsample(frames[3], 8))
    assert area_downsample(frames, 24) is frames


def test_a_size_that_does_not_divide_is_refused() -> None:
    with pytest.raises(InputError, match=r"24 x 24 cannot .* 7 x 7.*Choose one of 1, 2, 3, 4, 6, 8, 12, 24"):
        area_downsample(torch.zeros(24, 24, 3, dtype=torch.uint8), 7)
