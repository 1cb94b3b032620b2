"""The Epps-Pulley distance between an empirical characteristic function and a target, and what all regularizers share.

The scale is fixed here once: the integrated squared discrepancy times the global number of samples, averaged over
projections. With that factor the expectation under exact matching does not depend on the batch size.
"""

import torch

from alewm.capacity.support import CapacitySupport
from alewm.distributed import mean_across_ranks, num_ranks
from alewm.regularizers.kernels.dispatch import PathName, prefix_mixture_cf
from alewm.regularizers.quadrature import Quadrature
from alewm.shapes import Float, Tensor


def global_mean_cf(
    s: Float[Tensor, "*batch N D"],
    weight: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    support: CapacitySupport,
    quadrature: Quadrature,
    path: PathName,
) -> tuple[Float[Tensor, "*batch Q P"], Float[Tensor, "*batch Q P"]]:
    """The weighted characteristic function averaged over ranks, by a single all-reduce inside autograd."""
    local = torch.stack(prefix_mixture_cf(s, weight, u, support, quadrature, path))
    real, imaginary = mean_across_ranks(local).unbind()
    return real, imaginary


def discrepancy(
    real: Float[Tensor, "*batch Q P"],
    imaginary: Float[Tensor, "*batch Q P"],
    target: Float[Tensor, "*#batch Q #P"],
    quadrature: Quadrature,
) -> Float[Tensor, "*batch P"]:
    """∫ w(τ) |φ̂(τ) - φ_0(τ)|² dτ along every direction; the targets here are all real."""
    square = (real - target).square() + imaginary.square()
    return torch.einsum("...qp,q->...p", square, quadrature.weights(square))


def global_num_samples(local: int) -> int:
    """The factor B: samples on all ranks together."""
    return local * num_ranks()
