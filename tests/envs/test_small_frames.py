"""What a small environment draws is what the loader makes of a large recording: evaluation sees what training saw."""

import pytest
import torch

from alewm.envs import two_room
from alewm.envs.two_room import TwoRoomRenderer
from alewm.resize import area_downsample


@pytest.mark.parametrize("size", [28, 56, 64, 100])
def test_drawing_small_and_averaging_down_give_the_same_bytes(size):
    span = two_room.POSITION_HIGH - two_room.POSITION_LOW
    positions = two_room.POSITION_LOW + span * torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
    large = TwoRoomRenderer(two_room.IMAGE_SIZE)(positions)
    assert torch.equal(TwoRoomRenderer(size)(positions), area_downsample(large, size))
