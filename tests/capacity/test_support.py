"""A support is a strictly increasing set of positive integers that ends in the latent width."""

import pytest

from alewm import CapacitySupport
from alewm.errors import InputError


def test_blocks_partition_the_latent():
    support = CapacitySupport((8, 16, 32, 64, 96))
    assert support.latent_dim == 96
    assert support.block_sizes == (8, 8, 16, 32, 32)
    assert sum(support.block_sizes) == support.latent_dim


def test_every_and_full_are_the_two_extremes():
    assert CapacitySupport.every(4).capacities == (1, 2, 3, 4)
    assert CapacitySupport.full(4).capacities == (4,)


@pytest.mark.parametrize("capacities", [(), (0, 4), (-1, 4), (4, 4), (8, 4)])
def test_what_is_not_increasing_and_positive_is_refused(capacities):
    with pytest.raises(InputError, match="positive and strictly increasing"):
        CapacitySupport(capacities)


@pytest.mark.parametrize("capacities", [(1.0, 2.0), ("4",), (True, 2)])
def test_what_is_not_an_integer_is_refused(capacities):
    with pytest.raises(Exception, match=r"tuple of integers|violates type hint|Type-check error"):
        CapacitySupport(capacities)


def test_a_support_must_end_in_the_latent_width():
    with pytest.raises(InputError, match="ends in 16, but the latent has 32 coordinates"):
        CapacitySupport((8, 16)).of_width(32)


def test_an_unsupported_capacity_is_named_with_the_choices():
    support = CapacitySupport((2, 8))
    assert support.index_of(8) == 1
    with pytest.raises(InputError, match=r"Capacity 4 is not supported; choose one of \(2, 8\)"):
        support.index_of(4)
