"""A residual sum with its LayerNorm in one kernel equals the two written out, values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm.kernels import encoder_blocks as module
from alewm.kernels.encoder_blocks import Branch, add_norm, no_branch
from alewm.kernels.tiles import CANDIDATES

EPS = 1e-12


def _inputs(rows: int, width: int, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((rows, width), (rows, width), (width,), (width,), (width,))
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def _plain(
    x: torch.Tensor, mapped: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    stream = x + mapped + bias
    return stream, F.layer_norm(stream, stream.shape[-1:], scale, shift, EPS)


@given(rows=st.integers(1, 40), width=st.sampled_from([24, 32, 192]), seed=st.integers(0, 2**31))
@settings(max_examples=10)
def test_values_and_gradients_are_those_of_the_two_written_out(rows: int, width: int, seed: int) -> None:
    x, mapped, bias, scale, shift = inputs = _inputs(rows, width, seed)
    expected = _plain(*inputs)
    found = add_norm(x, Branch(mapped, bias), scale, shift, eps=EPS)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    above = [torch.randn(rows, width, generator=torch.Generator().manual_seed(seed + 1 + i)) for i in range(2)]
    for one, other in zip(
        torch.autograd.grad(found, inputs, above), torch.autograd.grad(expected, inputs, above), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_programs_that_share_many_rows_add_them_all_up(monkeypatch) -> None:
    monkeypatch.setattr(module, "_PROCESSORS", 1)  # eight programs for nineteen blocks of rows
    x, mapped, bias, scale, shift = inputs = _inputs(75, 32, seed=0)
    found = add_norm(x, Branch(mapped, bias), scale, shift, eps=EPS)
    expected = _plain(*inputs)
    for one, other in zip(
        torch.autograd.grad(found[0].sum() + found[1].square().sum(), inputs),
        torch.autograd.grad(expected[0].sum() + expected[1].square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("tile", CANDIDATES["add_norm_backward"], ids=str)
def test_every_tile_gives_the_same_gradients(tile) -> None:
    x, _, _, scale, _ = _inputs(37, 24, seed=3)
    above = [tensor.detach() for tensor in _inputs(37, 24, seed=4)[:2]]
    with torch.no_grad():
        expected = module.run_add_norm_backward(*above, x, scale, EPS)
        found = module.run_add_norm_backward(*above, x, scale, EPS, tile)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_stream_begins_with_nothing_added() -> None:
    x, _, _, scale, shift = _inputs(5, 32, seed=2)
    stream, xn = add_norm(x, no_branch(x, torch.float32), scale, shift, eps=EPS)
    assert torch.equal(stream, x)
    torch.testing.assert_close(xn, F.layer_norm(x, (32,), scale, shift, EPS), atol=1e-5, rtol=1e-5)


def test_compilers_are_told_the_truth_about_the_operation() -> None:
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(module._add_norm, (*_inputs(5, 32, seed=3), EPS), test_utils=checks)
