"""The fused MLP against the plain one; its kernels run in Triton's interpreter, so no GPU is needed.

The interpreter multiplies float32 and float16, not bfloat16, which `alewm bench check` compares on a GPU.
"""

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from alewm.model.fused import mlp
from alewm.model.fused.kernel_parts import gelu, gelu_slope
from alewm.model.fused.tiles import Tile
from alewm.model.fused.widths import two_parts

SMALL = Tile(rows=16, chunk=16, warps=1, stages=1)


def draw(*shape, seed=0, factor=1.0):
    return factor * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def inputs_of(rows, width, hidden):
    x = draw(rows, width, seed=1) + 0.3
    widen = (draw(hidden, width, seed=4, factor=width**-0.5), draw(hidden, seed=5))
    narrow = draw(width, hidden, seed=6, factor=hidden**-0.5)
    return [tensor.requires_grad_() for tensor in (x, *widen, narrow)]


def plain(x, w1, b1, w2):
    return F.linear(F.gelu(F.linear(x, w1, b1)), w2)


def assert_agrees(inputs, dtype, tolerance):
    """Values and all gradients, each within `tolerance` of its largest entry."""
    x, *parameters = inputs
    found = mlp.mlp(x.to(dtype), *parameters)
    assert found.dtype == dtype
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected = plain(*wide)
    direction = draw(*found.shape, seed=9)
    gradients = zip(
        (found, *torch.autograd.grad(found, inputs, direction.to(dtype))),
        (expected, *torch.autograd.grad(expected, wide, direction.double())),
        strict=True,
    )
    for index, (a, b) in enumerate(gradients):
        worst = (a - b).abs().max() / b.abs().max()
        assert worst <= tolerance, f"output or gradient {index} differs by {worst:.1e}"


@pytest.mark.parametrize(("rows", "width", "hidden"), [(3, 192, 768), (130, 64, 128), (1, 48, 96), (17, 32, 16)])
def test_the_mlp_and_its_gradients_are_those_of_the_plain_one(rows, width, hidden):
    assert_agrees(inputs_of(rows, width, hidden), torch.float32, 3e-6)


def test_with_products_in_half_precision_only_rounding_differs():
    assert_agrees(inputs_of(20, 64, 64), torch.float16, 3e-3)


def test_tokens_may_come_in_any_order_of_memory():
    x, *parameters = (tensor.detach() for tensor in inputs_of(15, 32, 16))
    images = x.view(5, 3, 32).transpose(0, 1)
    torch.testing.assert_close(mlp.mlp(images, *parameters), plain(images, *parameters))
    grad_y, h = draw(32, 4).mT, draw(4, 16)
    found, again = (mlp.run_narrow_backward(grad, parameters[2], h, SMALL) for grad in (grad_y, grad_y.contiguous()))
    assert torch.equal(found[0], again[0])


def test_gelu_is_that_of_the_rounded_product_which_is_kept():
    x, w1, b1, *_ = (tensor.detach() for tensor in inputs_of(20, 64, 64))
    h, a = mlp.run_widen(x.half(), w1.half(), b1, SMALL)
    assert h.dtype == a.dtype == torch.float16
    assert (a - F.gelu(h.double())).abs().max() <= 2**-11 * a.abs().max() + 1e-6


def test_how_work_is_cut_changes_rounding_only_and_the_same_cut_repeats_bit_by_bit():
    x, w1, b1, w2 = (tensor.detach() for tensor in inputs_of(40, 32, 64))
    grad_y, h = draw(40, 32), draw(40, 64, seed=8)
    results = [
        (*mlp.run_widen(x, w1, b1, tile), *mlp.run_narrow_backward(grad_y, w2, h, tile))
        for tile in (SMALL, SMALL, Tile(64, 32, 1, 1), Tile(32, 16, 1, 1, parts=2), Tile(16, 16, 1, 1, parts=4))
    ]
    for once, again, *otherwise in zip(*results, strict=True):
        assert torch.equal(once, again)
        for other in otherwise:
            torch.testing.assert_close(once, other, rtol=1e-5, atol=1e-5)


def test_rows_beyond_the_last_add_nothing_to_the_sums():
    """A block of rows reaches beyond the last, where GELU'(0) is not zero."""
    w2, h, grad_y = draw(32, 16), draw(3, 16), draw(3, 32)
    grad_h, sums = mlp.run_narrow_backward(grad_y, w2, h, SMALL)
    torch.testing.assert_close(sums, grad_h.sum(0))


def test_compilers_are_told_the_truth_about_the_operation():
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(mlp._mlp, inputs_of(5, 32, 16), test_utils=checks)


@triton.jit
def gelu_kernel(h, value, slope, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(h + at)
    tl.store(value + at, gelu(x))
    tl.store(slope + at, gelu_slope(x))


def test_gelu_and_its_derivative_are_right_to_a_thousandth_of_rounding():
    h = torch.cat([torch.linspace(-15, 15, 8190), torch.tensor([-1e6, 1e6])])
    value, slope = (torch.empty_like(h) for _ in range(2))
    gelu_kernel[(1,)](h, value, slope, SIZE=8192)
    exact_h = h.double().requires_grad_()
    exact = F.gelu(exact_h)
    (exact_slope,) = torch.autograd.grad(exact.sum(), exact_h)
    for found, expected in ((value, exact), (slope, exact_slope)):
        torch.testing.assert_close(found.double(), expected.detach(), rtol=1e-6, atol=1e-6)


@given(width=st.integers(1, 4096))
def test_a_width_is_split_into_two_powers_of_two_where_it_can_be(width):
    left, right = two_parts(width)
    if left:
        assert left + right == width
        assert left >= right
        assert all(part & (part - 1) == 0 for part in (left, right))
    else:
        assert width.bit_count() > 2 or width == 1
