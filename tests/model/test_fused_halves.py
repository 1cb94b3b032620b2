"""Fused half-blocks against the plain ones; their kernels run in Triton's interpreter, so no GPU is needed.

The interpreter multiplies float32 and float16, not bfloat16, which `alewm bench check` compares on a GPU.
"""

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm.model.fused import attention, mlp
from alewm.model.fused.kernel_parts import gelu, gelu_and_slope
from alewm.model.fused.tiles import Tile
from alewm.model.fused.widths import two_parts, why_not_fused

EPS = 1e-12
SMALL = Tile(rows=16, chunk=16, warps=1, stages=1)


def draw(*shape, seed=0, factor=1.0):
    return factor * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def mlp_inputs(rows, width, hidden):
    x = draw(rows, width, seed=1) + 0.3
    norm = (1 + draw(width, seed=2, factor=0.3), draw(width, seed=3, factor=0.3))
    widen = (draw(hidden, width, seed=4, factor=width**-0.5), draw(hidden, seed=5))
    narrow = (draw(width, hidden, seed=6, factor=hidden**-0.5), draw(width, seed=7))
    return [tensor.requires_grad_() for tensor in (x, *norm, *widen, *narrow)]


def plain_mlp(x, scale, shift, w1, b1, w2, b2):
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:], scale, shift, EPS), w1, b1)), w2, b2)


def attention_inputs(images, tokens, width):
    x = draw(images, tokens, width, seed=1) + 0.3
    norm = (1 + draw(width, seed=2, factor=0.3), draw(width, seed=3, factor=0.3))
    qkv = (draw(3 * width, width, seed=4, factor=width**-0.5), draw(3 * width, seed=5))
    output = (draw(width, width, seed=6, factor=width**-0.5), draw(width, seed=7))
    return [tensor.requires_grad_() for tensor in (x, *norm, *qkv, *output)]


def plain_attention(x, scale, shift, w, b, w_out, b_out, num_heads):
    stacked = F.linear(F.layer_norm(x, x.shape[-1:], scale, shift, EPS), w, b)
    query, key, value = stacked.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
    mixed = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1) @ value
    return x + F.linear(mixed.transpose(1, 2).flatten(2), w_out, b_out)


def fused_attention(x, scale, shift, w, b, w_out, b_out, num_heads, dtype):
    return attention.attention_half(x, scale, shift, (w, b), (w_out, b_out), num_heads, eps=EPS, dtype=dtype)


def assert_agrees(fused, plain, inputs, tolerance):
    """Values and all gradients, each within `tolerance` of its largest entry, or of the gradient's whole."""
    found = fused(*inputs)
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected = plain(*wide)
    direction = draw(*found.shape, seed=9)
    gradients = zip(
        (found, *torch.autograd.grad(found, inputs, direction)),
        (expected, *torch.autograd.grad(expected, wide, direction.double())),
        strict=True,
    )
    for index, (a, b) in enumerate(gradients):
        assert a.dtype == torch.float32
        worst = (a - b).abs().max() / b.abs().max()
        assert worst <= tolerance, f"output or gradient {index} differs by {worst:.1e}"


@pytest.mark.parametrize(("rows", "width", "hidden"), [(3, 192, 768), (65, 64, 128), (1, 48, 96), (17, 32, 16)])
def test_the_mlp_half_and_its_gradients_are_those_of_the_plain_one(rows, width, hidden):
    def fused(*inputs):
        return mlp.mlp_half(*inputs, eps=EPS, dtype=torch.float32)

    assert_agrees(fused, plain_mlp, mlp_inputs(rows, width, hidden), 2e-6)


@pytest.mark.parametrize(("images", "tokens", "width", "heads"), [(1, 3, 192, 3), (13, 5, 64, 2), (1, 1, 48, 1)])
def test_the_attention_half_and_its_gradients_are_those_of_the_plain_one(images, tokens, width, heads):
    assert_agrees(
        lambda *inputs: fused_attention(*inputs, heads, torch.float32),
        lambda *inputs: plain_attention(*inputs, heads),
        attention_inputs(images, tokens, width),
        3e-6,
    )


def test_with_products_in_half_precision_only_rounding_differs():
    assert_agrees(
        lambda *inputs: mlp.mlp_half(*inputs, eps=EPS, dtype=torch.float16), plain_mlp, mlp_inputs(20, 64, 64), 3e-3
    )
    assert_agrees(
        lambda *inputs: fused_attention(*inputs, 2, torch.float16),
        lambda *inputs: plain_attention(*inputs, 2),
        attention_inputs(4, 5, 64),
        3e-3,
    )


@settings(max_examples=6)
@given(rows=st.integers(1, 33), seed=st.integers(0, 1000), spread=st.floats(0.01, 100))
def test_what_goes_back_through_the_norm_leaves_mean_and_length_of_a_row_alone(rows, seed, spread):
    """LN forgets both, so its gradient has no part along a row's mean nor along the row."""
    _, _, _, w1, b1, w2, _ = (tensor.detach() for tensor in mlp_inputs(rows, 32, 16))
    x, grad_y = draw(rows, 32, seed=seed, factor=spread) + 3, draw(rows, 32, seed=seed + 1)
    ones, zeros = torch.ones(32), torch.zeros(32)
    grad_x, xn, *_ = mlp.run_backward(grad_y, x, ones, zeros, w1, b1, w2, EPS, SMALL)
    through = (grad_x - grad_y) * spread  # the gradient of LN scales with the inverse of a row's spread
    # What is lost when grad_y is added to a small number, and when a small spread is told from rounding of the mean, 3.
    allowed = 1e-4 * (1 + spread * 1e-2) + 32 * 3 * torch.finfo(torch.float32).eps / spread
    assert through.sum(-1).abs().max() < allowed
    assert (through * xn).sum(-1).abs().max() < allowed


def test_how_work_is_cut_changes_rounding_only_and_the_same_cut_repeats_bit_by_bit():
    x, *parameters = (tensor.detach() for tensor in mlp_inputs(40, 32, 64))
    grad_y, (*but_last, _) = draw(40, 32), parameters
    results = [
        (
            mlp.run_forward(x, *parameters, EPS, tile),
            *mlp.run_backward(grad_y, x, *but_last, EPS, tile),
        )
        for tile in (SMALL, SMALL, Tile(rows=64, chunk=32, warps=1, stages=1))
    ]
    for once, again, otherwise in zip(*results, strict=True):
        assert torch.equal(once, again)
        torch.testing.assert_close(once, otherwise, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "operation",
    [
        (mlp._mlp_half, (*mlp_inputs(5, 32, 16), EPS)),
        (attention._qkv, (*attention_inputs(1, 5, 32)[:5], EPS)),
        (attention._project, (*(draw(1, 5, 32), draw(32, 32), draw(32), draw(1, 5, 32)),)),
    ],
    ids=["mlp", "qkv", "project"],
)
def test_compilers_are_told_the_truth_about_an_operation(operation):
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(*operation, test_utils=checks)


@triton.jit
def gelu_kernel(h, alone, value, slope, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(h + at)
    a, b = gelu_and_slope(x)
    tl.store(alone + at, gelu(x))
    tl.store(value + at, a)
    tl.store(slope + at, b)


def test_gelu_and_its_derivative_are_exact_to_float32():
    h = torch.linspace(-15, 15, 4096)
    alone, value, slope = (torch.empty_like(h) for _ in range(3))
    gelu_kernel[(1,)](h, alone, value, slope, SIZE=4096)
    exact_h = h.double().requires_grad_()
    exact = F.gelu(exact_h)
    (exact_slope,) = torch.autograd.grad(exact.sum(), exact_h)
    for found, expected in ((alone, exact), (value, exact), (slope, exact_slope)):
        torch.testing.assert_close(found.double(), expected.detach(), rtol=3e-7, atol=3e-7)


@given(width=st.integers(1, 4096))
def test_a_width_is_split_into_two_powers_of_two_where_it_can_be(width):
    left, right = two_parts(width)
    if left:
        assert left + right == width
        assert left >= right
        assert all(part & (part - 1) == 0 for part in (left, right))
    else:
        assert width.bit_count() > 2 or width == 1


def test_widths_that_do_not_fit_are_named():
    assert why_not_fused(192, 768) is None
    assert why_not_fused(64, 64) is None
    assert "96 and 768 are not multiples of 64" in why_not_fused(96, 768)
    assert "rows of 384 do not fit" in why_not_fused(384, 1536)
