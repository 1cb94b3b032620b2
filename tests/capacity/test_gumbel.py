"""The straight-through choice: exactly one-hot forward, the soft gradient backward, samples distributed as q."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm import CapacitySupport
from alewm.capacity.support import (
    TEMPERATURE,
    gumbel_noise,
    mask_of_choice,
    modal_index,
    prefix_masks,
    straight_through_choice,
)


@given(st.integers(0, 10_000), st.floats(-60, 60))
@settings(max_examples=50)
def test_forward_is_exactly_one_hot_in_floating_point(seed, scale):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(64, 8, generator=generator)
    choice = straight_through_choice(logits, gumbel_noise(64, 8, generator=generator))
    assert ((choice == 0) | (choice == 1)).all()
    assert (choice.sum(-1) == 1).all()


def test_the_gradient_is_that_of_the_soft_choice():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(16, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    noise = gumbel_noise(16, 5, generator=generator, dtype=torch.float64)
    weight = torch.randn(16, 5, generator=generator, dtype=torch.float64)
    hard = torch.autograd.grad((weight * straight_through_choice(logits, noise)).sum(), logits)[0]
    soft_choice = ((logits.log_softmax(-1) + noise) / TEMPERATURE).softmax(-1)
    soft = torch.autograd.grad((weight * soft_choice).sum(), logits)[0]
    torch.testing.assert_close(hard, soft, rtol=0, atol=0)
    assert soft.abs().max() > 0


def test_choices_are_distributed_as_q():
    """The Gumbel-max trick: frequencies of 200,000 choices within five standard errors of q."""
    num = 200_000
    q = torch.tensor([0.05, 0.15, 0.5, 0.3])
    noise = gumbel_noise(num, 4, generator=torch.Generator().manual_seed(1))
    frequency = straight_through_choice(q.log().expand(num, 4), noise).mean(0)
    assert ((frequency - q).abs() < 5 * (q * (1 - q) / num).sqrt()).all()


def test_noise_is_finite():
    assert gumbel_noise(100_000, generator=torch.Generator().manual_seed(0)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("uniform", [0.0, 1.0])
def test_noise_is_finite_even_where_the_uniform_draw_is_zero_or_one(uniform, dtype, monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, uniform, dtype=dtype))
    noise = gumbel_noise(4, generator=torch.Generator(), dtype=dtype)
    assert noise.isfinite().all()
    assert (noise > 0).all() == (uniform == 1.0)


def test_masks_keep_exactly_the_prefix():
    support = CapacitySupport((2, 3, 6))
    masks = prefix_masks(support)
    assert masks.tolist() == [[1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1] * 6]
    choice = torch.eye(3)[[2, 0]]
    assert mask_of_choice(choice, masks).tolist() == [[1] * 6, [1, 1, 0, 0, 0, 0]]


def test_masks_first_asked_for_in_inference_mode_can_be_learned_with():
    support = CapacitySupport((1, 4, 9))
    with torch.inference_mode():
        prefix_masks(support)
    choice = torch.eye(3).requires_grad_()
    mask_of_choice(choice, prefix_masks(support)).sum().backward()
    assert choice.grad.tolist() == [[1, 4, 9]] * 3


def test_a_modal_tie_goes_to_the_smaller_capacity():
    assert modal_index(torch.tensor([[0.0, 2.0, 2.0], [3.0, 1.0, 3.0]])).tolist() == [1, 0]
