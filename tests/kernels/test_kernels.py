"""The recurrence and the C path compute what the definition says, in value and gradient.

Claims: float64 agrees to 1e-10, float32 to 1e-5 of the largest entry; for any sizes, also those that do not fill a
vector; for angles far beyond one turn; for shared and for separate directions and weights; and the C path's result does
not depend on the number of threads.
"""

import subprocess
import sys

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from alewm import CapacitySupport
from alewm.kernels import characteristic_function
from alewm.kernels.characteristic_function import choose, prefix_mixture_cf
from alewm.kernels.compiled import NativeUnavailableError
from alewm.regularizers.quadrature import EPPS_PULLEY, Quadrature

SUPPORT = CapacitySupport((2, 3, 7))
HAS_NATIVE = characteristic_function.why_no_native_path(torch.zeros(1), SUPPORT, EPPS_PULLEY) is None
PATHS = ["recurrence", *(["native"] if HAS_NATIVE else [])]


def value_and_gradients(path, s, weight, u, support, quadrature=EPPS_PULLEY):
    s, weight = s.clone().requires_grad_(), weight.clone().requires_grad_()
    real, imaginary = prefix_mixture_cf(s, weight, u, support, quadrature, path)
    mixing = torch.linspace(0.3, 1.7, real.numel(), dtype=s.dtype).view(real.shape)
    loss = (mixing * real).sum() + (mixing.flip(0) * imaginary).sum()
    return [real.detach(), imaginary.detach(), *torch.autograd.grad(loss, (s, weight))]


def assert_close_to_largest(actual, expected, tolerance):
    total_weight = expected[0].abs().max()  # at τ = 0, and the scale of both parts: either may cancel to nothing
    scales = [total_weight, total_weight, *(gradient.abs().max() for gradient in expected[2:])]
    for a, e, scale in zip(actual, expected, scales, strict=True):
        assert a.shape == e.shape
        assert (a.double() - e.double()).abs().max() <= tolerance * scale


@example((3,), {"directions"}, 5, {2, 3}, 4, 5, 1.0, 0)
@example((2, 3), {"weights"}, 5, {2, 3}, 4, 5, 1.0, 0)
@given(
    batch=st.sampled_from([(), (1,), (3,), (2, 3), (2, 1)]),
    shared=st.sets(st.sampled_from(["weights", "directions"])),
    samples=st.integers(1, 40),
    capacities=st.sets(st.integers(1, 20), min_size=1, max_size=5),
    projections=st.integers(1, 40),
    knots=st.integers(2, 20),
    scale=st.floats(0.01, 30),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25)
def test_fast_paths_agree_with_the_definition(batch, shared, samples, capacities, projections, knots, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    support, quadrature = CapacitySupport(tuple(sorted(capacities))), Quadrature(knots, 3.0)
    weights, directions = ((1,) * len(batch) if kind in shared else batch for kind in ("weights", "directions"))
    s = scale * torch.randn(*batch, samples, support.latent_dim, generator=generator)
    weight = torch.rand(*weights, samples, len(support), generator=generator) / samples
    gaussian = torch.randn(*directions, support.latent_dim, projections, generator=generator)
    u = torch.nn.functional.normalize(gaussian, dim=-2)
    wide = (s.double(), weight.double(), u.double(), support, quadrature)
    exact = value_and_gradients("reference", *wide)
    assert_close_to_largest(value_and_gradients("recurrence", *wide), exact, 1e-10)
    for path in PATHS:
        # An angle of size t carries a float32 rounding error of t * 6e-8 before any cosine is taken.
        tolerance = 1e-5 * max(1.0, scale)
        assert_close_to_largest(value_and_gradients(path, s, weight, u, support, quadrature), exact, tolerance)


def test_the_recurrence_s_gradient_passes_finite_differences():
    s = torch.randn(2, 5, 7, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(1, 5, 3, dtype=torch.float64, requires_grad=True)
    u = torch.randn(1, 7, 4, dtype=torch.float64)

    def both_parts(s, weight):
        return prefix_mixture_cf(s, weight, u, SUPPORT, EPPS_PULLEY, "recurrence")

    assert torch.autograd.gradcheck(both_parts, (s, weight))


@pytest.mark.parametrize("path", PATHS)
def test_nothing_of_the_size_of_all_knots_is_kept_for_the_backward_pass(path):
    s, weight = torch.randn(1, 50, 7, requires_grad=True), torch.rand(1, 50, 3, requires_grad=True)
    u = torch.randn(1, 7, 32)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        prefix_mixture_cf(s, weight, u, SUPPORT, EPPS_PULLEY, path)
    all_angles = 17 * 50 * 3 * 32
    assert max(kept) <= all_angles // 17
    if path == "native":
        assert sum(kept) == s.numel() + weight.numel() + u.numel()


def test_the_choice_names_its_reason():
    wide = torch.zeros(1, dtype=torch.float64)
    assert choose(wide, SUPPORT, EPPS_PULLEY).path == "recurrence"
    assert "float64" in choose(wide, SUPPORT, EPPS_PULLEY).reason
    with pytest.raises(NativeUnavailableError, match=r"cannot be used: the latents are torch\.float64"):
        choose(wide, SUPPORT, EPPS_PULLEY, "native")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_that_are_learned_get_the_gradient_of_the_definition(dtype):
    """The C path has none for them, and a path that is chosen must not leave it out in silence."""
    generator = torch.Generator().manual_seed(0)
    s, weight = torch.randn(2, 9, 7, generator=generator, dtype=dtype), torch.full((1, 9, 3), 1 / 27, dtype=dtype)
    u = torch.randn(1, 7, 4, generator=generator, dtype=dtype).requires_grad_()
    found, expected = (
        torch.autograd.grad(sum(part.square().sum() for part in prefix_mixture_cf(s, weight, u, SUPPORT, *rest)), u)[0]
        for rest in ((EPPS_PULLEY,), (EPPS_PULLEY, "reference"))
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    if dtype == torch.float32:
        with pytest.raises(NativeUnavailableError, match="the directions need a gradient"):
            prefix_mixture_cf(s, weight, u, SUPPORT, EPPS_PULLEY, "native")


def test_without_a_compiler_the_recurrence_serves_and_says_why():
    """A real process whose PATH has no compiler: it must still compute, and name the reason."""
    code = (
        "import torch; from alewm import CapacitySupport; from alewm.kernels.characteristic_function import *; "
        "from alewm.regularizers.quadrature import EPPS_PULLEY; k = CapacitySupport((2, 4)); s = torch.randn(8, 4); "
        "print(choose(s, k, EPPS_PULLEY)); prefix_mixture_cf(s, torch.ones(8, 2), torch.randn(4, 3), k, EPPS_PULLEY)"
    )
    environment = {"PATH": "/nonexistent", "HOME": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "path='recurrence'" in done.stdout
    assert "no C compiler was found" in done.stdout


def test_a_compiler_that_fails_is_quoted(tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'fatal: no space in heaven' >&2\nexit 1\n")
    broken.chmod(0o755)
    code = (
        "import torch; from alewm import CapacitySupport; from alewm.kernels.characteristic_function import choose; "
        "from alewm.regularizers.quadrature import EPPS_PULLEY; "
        "print(choose(torch.zeros(1), CapacitySupport((2,)), EPPS_PULLEY))"
    )
    environment = {"PATH": "/usr/bin:/bin", "CC": str(broken), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "path='recurrence'" in done.stdout
    assert "no space in heaven" in done.stdout


def test_the_number_of_threads_does_not_change_a_bit():
    s, weight, u = torch.randn(5, 64, 7), torch.rand(5, 64, 3), torch.randn(5, 7, 16)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(value_and_gradients("auto", s, weight, u, SUPPORT))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
