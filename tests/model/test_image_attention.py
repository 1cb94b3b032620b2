"""Attention among an image's tokens by kernels of our own equals the library's, values and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm.model.attention import attend
from alewm.model.fused.image_attention import (
    attend_within_images,
    run_attention,
    run_attention_backward,
    why_not_attended,
)
from alewm.model.fused.tiles import Tile


def _plain(qkv: torch.Tensor, num_heads: int) -> torch.Tensor:
    per_head = qkv.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
    return attend(*per_head.unbind(0)).transpose(1, 2).flatten(2)


@given(
    patches=st.sampled_from([16, 32]),
    heads=st.sampled_from([1, 3]),
    spread=st.sampled_from([0.1, 1.0, 3.0]),
    tile=st.sampled_from([Tile(16, 16, 4, 1), Tile(16, 8, 4, 1), Tile(8, 16, 4, 1)]),
    seed=st.integers(0, 2**31),
)
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
    found = run_attention_backward(grad, qkv, mixed, lse, heads, tile)
    torch.testing.assert_close(found, expected_grad, atol=2e-4, rtol=2e-4)


def test_huge_scores_neither_overflow_nor_vanish() -> None:
    qkv = torch.zeros(1, 17, 48)
    qkv[:, :, :32] = 60.0  # every score is 14,400
    qkv[:, :, 32:] = torch.arange(17.0)[:, None]
    mixed, lse = run_attention(qkv, 1, Tile(16, 16, 4, 1))
    torch.testing.assert_close(mixed, torch.full((1, 17, 16), 8.0))
    assert torch.isfinite(lse).all()


def test_it_is_an_operation_that_compilers_understand() -> None:
    qkv = torch.randn(1, 65, 192, requires_grad=True)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(torch.ops.alewm.image_attention.default, (qkv, 1), test_utils=checks)
    torch.testing.assert_close(attend_within_images(qkv, 1), _plain(qkv, 1), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize(
    ("num_tokens", "head_width", "reason"),
    [(257, 64, None), (65, 64, None), (17, 64, "17 tokens"), (258, 64, "258 tokens"), (257, 32, "32 wide")],
)
def test_what_the_kernels_do_not_fit_is_said(num_tokens: int, head_width: int, reason: str | None) -> None:
    found = why_not_attended(num_tokens, head_width)
    assert (found is None) == (reason is None)
    assert reason is None or reason in str(found)
