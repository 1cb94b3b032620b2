"""The GPU path against the definition; its kernels run in Triton's interpreter, so no GPU is needed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm.capacity.support import CapacitySupport
from alewm.kernels import characteristic_function_triton as gpu
from alewm.kernels.characteristic_function import GpuPathUnavailableError, choose, prefix_mixture_cf, reference_cf
from alewm.regularizers.quadrature import EPPS_PULLEY, Quadrature, random_directions


def draw(num_groups, N, support, P, *, shares_directions=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    D = support.latent_dim
    s = torch.randn(num_groups, N, D, generator=generator).requires_grad_()
    weight = torch.rand(1, N, len(support), generator=generator).div(N).requires_grad_()
    sets = 1 if shares_directions else num_groups
    u = torch.stack([random_directions(D, P, generator=generator) for _ in range(sets)])
    return s, weight, u


def assert_agrees(s, weight, u, support, quadrature=EPPS_PULLEY):
    fast = torch.stack(gpu.prefix_mixture_cf(s, weight, u, support, quadrature))
    exact = torch.stack(reference_cf(s.double(), weight.double(), u.double(), support, quadrature))
    torch.testing.assert_close(fast.double(), exact, rtol=1e-5, atol=1e-5)
    direction = torch.randn(exact.shape, generator=torch.Generator().manual_seed(9))
    found = torch.autograd.grad(fast, (s, weight), direction)
    expected = torch.autograd.grad(exact, (s, weight), direction.double())
    for gradient, exact_gradient in zip(found, expected, strict=True):
        scale = exact_gradient.abs().max().item()
        torch.testing.assert_close(gradient, exact_gradient.float(), rtol=1e-4, atol=1e-5 * scale)


@settings(max_examples=8)
@given(
    N=st.integers(1, 40),
    P=st.integers(1, 70),
    capacities=st.lists(st.integers(1, 24), min_size=1, max_size=5, unique=True).map(sorted),
    num_groups=st.integers(1, 2),
    shares_directions=st.booleans(),
)
def test_values_and_gradients_are_those_of_the_definition(N, P, capacities, num_groups, shares_directions):
    support = CapacitySupport(tuple(capacities))
    assert_agrees(*draw(num_groups, N, support, P, shares_directions=shares_directions), support)


def test_tiles_that_are_full_and_tiles_that_are_not_and_another_quadrature():
    support = CapacitySupport((2, 5))
    assert_agrees(*draw(2, 64, support, 65), support)
    assert_agrees(*draw(1, 33, support, 64), support, Quadrature(num_knots=5, end=2.0))


def test_walking_back_twice_gives_the_same_gradient():
    """The gradient overwrites the projections, so a second pass must compute them again."""
    support = CapacitySupport((3, 6))
    s, weight, u = draw(1, 10, support, 8)
    total = torch.stack(gpu.prefix_mixture_cf(s, weight, u, support, EPPS_PULLEY)).square().sum()
    first = torch.autograd.grad(total, (s, weight), retain_graph=True)
    second = torch.autograd.grad(total, (s, weight))
    for once, again in zip(first, second, strict=True):
        assert torch.equal(once, again)


def test_latents_on_a_processor_do_not_take_it_and_are_told_why():
    support = CapacitySupport((2, 4))
    s, weight, u = draw(1, 5, support, 3)
    assert choose(s.detach(), support, EPPS_PULLEY).path == "native"
    assert "the latents are on the cpu" in choose(s.double(), support, EPPS_PULLEY).reason
    with pytest.raises(GpuPathUnavailableError, match="cannot be used: the latents are on the cpu"):
        prefix_mixture_cf(s, weight, u, support, EPPS_PULLEY, "gpu")
