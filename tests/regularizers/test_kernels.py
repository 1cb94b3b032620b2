"""The recurrence and the C path compute what the definition says, in value and gradient.

Claims: float64 agrees to 1e-10, float32 to 1e-5 of the largest entry; for any sizes, also those that do not fill a
vector; for angles far beyond one turn; and the C path's result does not depend on the number of threads.
"""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm.regularizers.kernels import native
from alewm.regularizers.kernels.dispatch import characteristic_function, choose
from alewm.regularizers.quadrature import EPPS_PULLEY, Quadrature

HAS_NATIVE = native.why_not(torch.zeros(1), 17) is None
PATHS = ["recurrence", *(["native"] if HAS_NATIVE else [])]


def value_and_gradients(path, x, weight, quadrature=EPPS_PULLEY):
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    real, imaginary = characteristic_function(x, weight, quadrature, path)
    mixing = torch.linspace(0.3, 1.7, real.numel(), dtype=x.dtype).view(real.shape)
    loss = (mixing * real).sum() + (imaginary.square() * mixing).sum()
    return [real.detach(), imaginary.detach(), *torch.autograd.grad(loss, (x, weight))]


def assert_close_to_largest(actual, expected, tolerance):
    for a, e in zip(actual, expected, strict=True):
        assert (a.double() - e.double()).abs().max() <= tolerance * e.abs().max().clamp(min=1e-30)


@given(
    groups=st.integers(1, 3),
    samples=st.integers(1, 130),
    projections=st.integers(1, 40),
    knots=st.integers(2, 20),
    scale=st.floats(0.01, 30),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_fast_paths_agree_with_the_definition(groups, samples, projections, knots, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(groups, samples, projections, generator=generator)
    weight = torch.rand(groups, samples, generator=generator) / samples
    quadrature = Quadrature(knots, 3.0)
    exact = value_and_gradients("reference", x.double(), weight.double(), quadrature)
    assert_close_to_largest(value_and_gradients("recurrence", x.double(), weight.double(), quadrature), exact, 1e-10)
    for path in PATHS:
        # An angle of size t carries a float32 rounding error of t * 6e-8 before any cosine is taken.
        tolerance = 1e-5 * max(1.0, scale)
        assert_close_to_largest(value_and_gradients(path, x, weight, quadrature), exact, tolerance)


def test_the_recurrence_s_gradient_passes_finite_differences():
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: characteristic_function(x, w, EPPS_PULLEY, "recurrence"), (x, weight))


def test_weights_broadcast_over_leading_axes():
    x, weight = torch.randn(3, 4, 10, 5), torch.rand(3, 1, 10)
    wide = characteristic_function(x, weight.expand(3, 4, 10), EPPS_PULLEY)
    for a, b in zip(characteristic_function(x, weight, EPPS_PULLEY), wide, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_of_the_size_of_all_knots_is_kept_for_the_backward_pass(path):
    x, weight = torch.randn(1, 200, 50, requires_grad=True), torch.rand(1, 200, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        characteristic_function(x, weight, EPPS_PULLEY, path)
    assert sum(kept) == x.numel() + weight.numel()


def test_the_choice_names_its_reason():
    assert choose(torch.zeros(1, dtype=torch.float64), EPPS_PULLEY).path == "recurrence"
    assert "float64" in choose(torch.zeros(1, dtype=torch.float64), EPPS_PULLEY).reason
    with pytest.raises(native.NativeUnavailableError, match=r"cannot be used: the tensors are torch\.float64"):
        choose(torch.zeros(1, dtype=torch.float64), EPPS_PULLEY, "native")


def test_without_a_compiler_the_recurrence_serves_and_says_why():
    """A real process whose PATH has no compiler: it must still compute, and name the reason."""
    code = (
        "import torch; from alewm.regularizers.kernels.dispatch import *; "
        "from alewm.regularizers.quadrature import EPPS_PULLEY; x = torch.randn(1, 8, 4); "
        "print(choose(x, EPPS_PULLEY)); characteristic_function(x, torch.ones(1, 8), EPPS_PULLEY)"
    )
    environment = {"PATH": "/nonexistent", "HOME": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "path='recurrence'" in done.stdout
    assert "no C compiler was found" in done.stdout


def test_the_number_of_threads_does_not_change_a_bit():
    x, weight = torch.randn(5, 64, 16), torch.rand(5, 64)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(value_and_gradients("auto", x, weight))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
