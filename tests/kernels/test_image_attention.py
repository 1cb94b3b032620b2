"""Attention among an image's tokens by kernels of our own equals the library's, values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st

from alewm.kernels.image_attention import (
    _attention,
    attention,
    run_attention,
    run_attention_backward,
    run_first_token_backward,
)
from alewm.kernels.tiles import Tile


def _plain(qkv: torch.Tensor, num_heads: int) -> torch.Tensor:
    per_head = qkv.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(*per_head.unbind(0)).transpose(1, 2).flatten(2)


@given(
    patches=st.sampled_from([16, 32]),
    heads=st.sampled_from([1, 3]),
    spread=st.sampled_from([0.1, 1.0, 3.0]),
    tile=st.sampled_from([Tile(16, 16, 4, 1), Tile(16, 8, 4, 1), Tile(8, 16, 4, 1)]),
    seed=st.integers(0, 2**31),
)
@example(patches=16, heads=1, spread=1.0, tile=Tile(64, 16, 4, 1), seed=0)  # more rows than patches
@settings(max_examples=8)
def test_every_tile_gives_the_librarys_values_and_gradients(
    patches: int, heads: int, spread: float, tile: Tile, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    qkv = spread * torch.randn(2, 1 + patches, 3 * heads * 16, generator=generator)
    grad = torch.randn(2, 1 + patches, heads * 16, generator=generator)
    leaf = qkv.clone().requires_grad_()
    expected = _plain(leaf, heads)
    (expected_grad,) = torch.autograd.grad(expected, leaf, grad)
    mixed, lse = run_attention(qkv, heads, tile)
    torch.testing.assert_close(mixed, expected, atol=2e-5, rtol=2e-5)
    found, total = run_attention_backward(grad, qkv, mixed, lse, heads, tile)
    torch.testing.assert_close(found, expected_grad, atol=2e-4, rtol=2e-4)
    torch.testing.assert_close(total, expected_grad.sum((0, 1)), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("tile", [Tile(1, 16, 4, 1), Tile(1, 8, 4, 2), Tile(1, 4, 4, 3)])
def test_gradients_of_keys_add_up_to_nothing_and_those_of_values_to_what_came(tile: Tile) -> None:
    """Over all tokens of an image, exactly, since a query's shares add up to one."""
    qkv, grad = torch.randn(2, 17, 3 * 48), torch.randn(2, 17, 48)
    mixed, lse = run_attention(qkv, 3, Tile(16, 16, 4, 1))
    grad_qkv, _, sums = run_first_token_backward(grad, qkv, mixed, lse, 3, tile)
    _, keys, values = sums.flatten(2).unbind(1)
    assert (keys == 0).all()
    torch.testing.assert_close(values, grad.sum(1))
    leaf = qkv.clone().requires_grad_()
    (expected,) = torch.autograd.grad(_plain(leaf, 3), leaf, grad)
    torch.testing.assert_close(grad_qkv[:, 0], expected[:, 0])
    for part, total in zip(expected[..., 48:].sum(1).chunk(2, -1), (keys, values), strict=True):
        torch.testing.assert_close(part, total, atol=1e-5, rtol=1e-5)


def test_huge_scores_neither_overflow_nor_vanish() -> None:
    qkv = torch.zeros(1, 17, 48)
    qkv[:, :, :32] = 60.0  # every score is 14,400
    qkv[:, :, 32:] = torch.arange(17.0)[:, None]
    mixed, lse = run_attention(qkv, 1, Tile(16, 16, 4, 1))
    torch.testing.assert_close(mixed, torch.full((1, 17, 16), 8.0))
    assert torch.isfinite(lse).all()


def test_it_is_an_operation_that_compilers_understand() -> None:
    x, weight, bias = torch.randn(1, 65, 64), 0.2 * torch.randn(192, 64), torch.randn(192)
    inputs = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(_attention, (*inputs, 1), test_utils=checks)
    found, expected = attention(*inputs, 1), _plain(F.linear(x, weight, bias), 1)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)
    gradients = (torch.autograd.grad(y.square().sum(), inputs) for y in (found, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)
