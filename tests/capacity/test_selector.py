"""The capacity network: the paper's size, a set function of frames, and equal to the prior before training."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm import CapacitySelector, CapacitySupport
from alewm.capacity.support import polynomial_prior

SMALL = CapacitySupport((8, 16, 32, 64, 96))
MEDIUM = CapacitySupport((8, 16, 32, 64, 96, 128, 160, 192))
LARGE = CapacitySupport((8, 16, 32, 64, 96, 128, 160, 192, 256, 320, 384))


@pytest.mark.parametrize(
    ("support", "feature_dim", "parameters"),
    [(SMALL, 192, 1_780_805), (MEDIUM, 192, 1_781_384), (LARGE, 384, 4_740_491)],
)
def test_parameter_counts_are_the_paper_s(support, feature_dim, parameters):
    selector = CapacitySelector(support, feature_dim, prior_degree=1.0)
    assert sum(p.numel() for p in selector.parameters()) == parameters


def trained_looking(seed: int) -> CapacitySelector:
    torch.manual_seed(seed)
    selector = CapacitySelector(SMALL, 32, prior_degree=-1.0, mlp_dim=48).eval()
    torch.nn.init.normal_(selector.head.weight)
    return selector


@given(st.integers(1, 7), st.integers(0, 1000), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_frames_are_a_set_of_any_size(num_frames, seed, random):
    selector = trained_looking(seed)
    features = torch.randn(3, num_frames, 32)
    order = list(range(num_frames))
    random.shuffle(order)
    torch.testing.assert_close(selector(features[:, order]), selector(features), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("degree", [-3.0, 0.0, 2.5])
def test_q_equals_the_prior_exactly_at_initialisation(degree):
    selector = CapacitySelector(MEDIUM, 64, prior_degree=degree)
    q = selector(torch.randn(5, 4, 64)).softmax(-1)
    torch.testing.assert_close(q, polynomial_prior(8, degree).expand(5, 8), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("degree", [-3.0, -1.0, -0.5, 0.0, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("support", [SMALL, MEDIUM, LARGE], ids=len)
def test_in_bfloat16_q_begins_at_the_prior_to_two_percent(support, degree):
    selector = CapacitySelector(support, 16, prior_degree=degree, num_blocks=0)
    with torch.autocast("cpu", torch.bfloat16):
        q = selector(torch.randn(2, 4, 16)).float().softmax(-1)
    torch.testing.assert_close(q, polynomial_prior(len(support), degree).expand_as(q), rtol=0.02, atol=0)


def test_blocks_start_with_different_weights():
    selector = CapacitySelector(SMALL, 32, prior_degree=0.0)
    first, second = selector.blocks[0].linear1.weight, selector.blocks[1].linear1.weight
    assert not torch.equal(first, second)


def test_no_gradient_reaches_the_encoder():
    features = torch.randn(2, 4, 32, requires_grad=True)
    trained_looking(0)(features).sum().backward()
    assert features.grad is None
