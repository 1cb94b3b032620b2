"""The fused MLP against the plain one; its kernels run in Triton's interpreter, so no GPU is needed.

The interpreter multiplies float32 and float16, not bfloat16, which `alewm-lab bench check` compares on a GPU.
"""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from alewm.errors import InputError
from alewm.kernels import encoder_blocks
from alewm.kernels.encoder_blocks import run_narrow_backward, run_widen, why_not_resident
from alewm.kernels.tiles import Tile, two_parts
from alewm.kernels.token_kernels import gelu_and_slope

SMALL = Tile(rows=16, chunk=16, warps=1, stages=1)
STAYS = Tile(rows=16, chunk=16, warps=1, stages=1, resident=1)


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
    found = encoder_blocks.mlp(x.to(dtype), *parameters)
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
    torch.testing.assert_close(encoder_blocks.mlp(images, *parameters), plain(images, *parameters))
    grad_y, slope = draw(32, 4).mT, draw(4, 16)
    for tile in (SMALL, STAYS):
        found, again = (run_narrow_backward(grad, parameters[2], slope, tile) for grad in (grad_y, grad_y.contiguous()))
        assert torch.equal(found[0], again[0])


@pytest.mark.parametrize("tile", [SMALL, STAYS])
def test_gelu_and_its_slope_are_rounded_once(tile):
    x, w1, b1, *_ = (tensor.detach() for tensor in inputs_of(20, 64, 64))
    x, w1 = x.half(), w1.half()
    slope, a = run_widen(x, w1, b1, tile)
    assert slope.dtype == a.dtype == torch.float16
    h = F.linear(x.double(), w1.double(), b1.double()).requires_grad_()
    expected = F.gelu(h)
    (expected_slope,) = torch.autograd.grad(expected.sum(), h)
    for found, exact in ((a, expected), (slope, expected_slope)):
        assert ((found - exact).abs() <= 2**-11 * exact.abs() + 2e-6).all()


@pytest.mark.parametrize("tile", [SMALL, STAYS])
def test_how_work_is_cut_changes_rounding_only_and_the_same_cut_repeats_bit_by_bit(tile):
    x, w1, b1, w2 = (tensor.detach() for tensor in inputs_of(40, 32, 64))
    grad_y, slope = draw(40, 32), draw(40, 64, seed=8)
    cuts = (Tile(64, 32, 1, 1), Tile(32, 16, 1, 1))
    stays = (STAYS, Tile(16, 32, 1, 2, resident=1), Tile(32, 64, 1, 1, resident=2))
    results = [
        (*run_widen(x, w1, b1, tile), *run_narrow_backward(grad_y, w2, slope, tile))
        for tile in (tile, tile, *cuts, *stays)
    ]
    for once, again, *otherwise in zip(*results, strict=True):
        assert torch.equal(once, again)
        for other in otherwise:
            torch.testing.assert_close(once, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tile", [SMALL, STAYS])
def test_rows_beyond_the_last_add_nothing_to_the_sums(tile):
    """A block of rows reaches beyond the last; what lies there in memory is none of them."""
    w2, slope, grad_y = draw(32, 16), draw(6, 16), draw(6, 32)
    grad_h, sums = run_narrow_backward(grad_y[:3], w2, slope[:3], tile)
    torch.testing.assert_close(grad_h, (grad_y[:3] @ w2) * slope[:3])
    torch.testing.assert_close(sums, grad_h.sum(0))


def test_weights_that_stay_are_used_by_many_walks_over_the_rows():
    """With one chunk of weights, eight programs share the rows, and the last of them has fewer blocks."""
    x, w1, b1, w2 = (tensor.detach() for tensor in inputs_of(16 * 19 + 5, 32, 16))
    slope, a = run_widen(x, w1, b1, STAYS)
    torch.testing.assert_close(a, F.gelu(F.linear(x, w1, b1)), rtol=1e-5, atol=2e-6)
    grad_h, sums = run_narrow_backward(x, w2, slope, STAYS)
    torch.testing.assert_close(grad_h, (x @ w2) * slope, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(sums, grad_h.sum(0), rtol=1e-5, atol=1e-4)


def test_matrices_may_begin_anywhere_in_memory():
    """A descriptor holds addresses of whole 16 bytes."""
    x, w1, b1, *_ = (tensor.detach() for tensor in inputs_of(5, 32, 16))
    shifted = torch.cat([torch.zeros(1), x.flatten()])[1:].view_as(x)
    assert shifted.data_ptr() % 16
    assert all(map(torch.equal, run_widen(shifted, w1, b1, STAYS), run_widen(x, w1, b1, STAYS)))


def test_what_a_device_or_a_width_does_not_allow_is_left_to_the_plain_kernels(monkeypatch):
    gpu = torch.device("cuda", 0)
    sizes = {"H200": 232_448, "A100": 166_912}
    for name, expected in (("H200", None), ("A100", "a processor of the GPU shares 163 KiB, not 227")):
        properties = SimpleNamespace(shared_memory_per_block_optin=sizes[name])
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, found=properties: found)
        assert why_not_resident(gpu, 192) == expected
    assert_agrees(inputs_of(3, 256, 64), torch.float32, 3e-6)
    with pytest.raises(InputError, match=r"as tile 16,16,1,1,1 asks: rows of 256 do not fit .* number may be 0"):
        run_widen(draw(3, 256), draw(16, 256), draw(16), STAYS)
    assert run_widen(draw(0, 32), draw(16, 32), draw(16))[1].shape == (0, 16)


def test_compilers_are_told_the_truth_about_the_operation():
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(encoder_blocks._mlp, inputs_of(5, 32, 16), test_utils=checks)


@triton.jit
def gelu_kernel(h, value, slope, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(h + at)
    gelu, derivative = gelu_and_slope(x)
    tl.store(value + at, gelu)
    tl.store(slope + at, derivative)


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
