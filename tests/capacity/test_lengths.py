"""Prefix lengths drawn within a block: survival without cliffs, and masks that are distributed so."""

import math

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from alewm import CapacitySupport
from alewm.capacity.prior import PrefixLengths, capacity_prior, survival

capacities = st.sets(st.integers(1, 30), min_size=1, max_size=8).map(lambda ks: tuple(sorted(ks)))
degrees = st.floats(-5, 5)


def prior_of(support, degree):
    return capacity_prior(support, degree, "smooth", dtype=torch.float64)


@given(capacities, degrees)
def test_drawing_within_blocks_leaves_each_block_its_probability(capacities, degree):
    support = CapacitySupport(capacities)
    prior = prior_of(support, degree)
    spread = PrefixLengths(support, drawn=True).probabilities(prior)
    assert spread.shape == (support.latent_dim,)
    blocks = spread.split(list(support.block_sizes))
    torch.testing.assert_close(torch.stack([block.sum() for block in blocks]), prior)
    for block in blocks:
        torch.testing.assert_close(block, block[:1].expand_as(block))


@given(capacities, degrees)
def test_survival_joins_the_steps_of_the_paper_s_prior_by_lines(capacities, degree):
    """At the first coordinate of each block both agree; from there to the next block's it falls by equal parts."""
    support = CapacitySupport(capacities)
    prior = prior_of(support, degree)
    smooth, steps = PrefixLengths(support, drawn=True).survival(prior), survival(prior, support)
    starts = [k - size for k, size in zip(support.capacities, support.block_sizes, strict=True)]
    torch.testing.assert_close(smooth[starts], steps[starts])
    falls = -torch.cat([smooth, smooth.new_zeros(1)]).diff()
    shares = prior / torch.tensor(support.block_sizes, dtype=torch.float64)
    torch.testing.assert_close(falls, shares.repeat_interleave(torch.tensor(support.block_sizes)))
    assert (smooth <= steps + 1e-12).all()


@given(st.integers(1, 12), degrees)
def test_blocks_of_one_coordinate_leave_nothing_to_draw(width, degree):
    support = CapacitySupport.every(width)
    q = capacity_prior(support, degree)
    drawn, fixed = PrefixLengths(support, drawn=True), PrefixLengths(support)
    assert drawn.lengths == fixed.lengths == support
    torch.testing.assert_close(drawn.probabilities(q), q)
    assert drawn.masks(torch.tensor([0.0, 0.999])).tolist() == [torch.ones(width, width).tril().tolist()] * 2


def test_a_capacity_stands_for_itself_where_nothing_is_drawn():
    support, q = CapacitySupport((2, 5, 6)), torch.tensor([[0.5, 0.3, 0.2]])
    fixed = PrefixLengths(support)
    assert fixed.lengths == support
    assert fixed.probabilities(q) is q
    torch.testing.assert_close(fixed.survival(q), survival(q, support))


@given(capacities, st.floats(0, 1, exclude_max=True, width=32))
@example((10,), 0.699999988079071)
def test_a_drawn_mask_is_a_prefix_that_ends_in_its_capacity_s_block(capacities, place):
    support = CapacitySupport(capacities)
    (masks,) = PrefixLengths(support, drawn=True).masks(torch.tensor([place]))
    lengths = masks.sum(-1).long().tolist()
    for mask, length, k, size in zip(masks, lengths, support.capacities, support.block_sizes, strict=True):
        assert mask.tolist() == [1.0] * length + [0.0] * (support.latent_dim - length)
        assert k - size < length <= k
        in_block = (torch.tensor(place) * size).item()  # in float32, where 10 times the float32 below 0.7 is 7
        assert length == min(k - size + 1 + math.floor(in_block), k)


@given(capacities, degrees)
def test_masks_at_places_all_over_the_block_have_the_survival_that_the_target_has(capacities, degree):
    """What MixSIGReg's target assumes is what masking does: with every place once, the mean mask is ρ exactly."""
    support = CapacitySupport(capacities)
    drawn, prior = PrefixLengths(support, drawn=True), prior_of(support, degree)
    num_places = math.lcm(*support.block_sizes)
    if num_places > 5000:
        return
    places = (torch.arange(num_places, dtype=torch.float64) + 0.5) / num_places
    active = (prior[:, None] * drawn.masks(places)).sum(1).mean(0)
    torch.testing.assert_close(active, drawn.survival(prior))
