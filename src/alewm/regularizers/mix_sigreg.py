"""MixSIGReg: how far the masked latent is from the prior-weighted mixture of Gaussian prefixes with zero suffixes."""

from typing import Literal

import torch
from torch import nn

from alewm.capacity.prior import polynomial_prior
from alewm.capacity.support import CapacitySupport
from alewm.regularizers.epps_pulley import discrepancy, global_mean_cf, global_num_samples, samples_second_to_last
from alewm.regularizers.kernels.dispatch import PathName
from alewm.regularizers.precision import at_least_float32, full_precision
from alewm.regularizers.prefix_projection import masked_prefix_projections, prefix_projections
from alewm.regularizers.quadrature import EPPS_PULLEY, Quadrature, gaussian_cf, prefix_mixture_cf
from alewm.regularizers.slices import directions_for
from alewm.shapes import Float, Tensor

Target = Literal["mixture", "gaussian"]
"""What the masked latent is compared with: the paper's mixture, or (an ablation) a standard normal."""


def mix_sigreg(
    s: Float[Tensor, "*batch N D"],
    q: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    prior: Float[Tensor, "*#batch C"],
    support: CapacitySupport,
    *,
    target: Target = "mixture",
    quadrature: Quadrature = EPPS_PULLEY,
    path: PathName = "auto",
) -> Float[Tensor, "*batch"]:
    """The statistic of N latents whose capacities are distributed as q, one number per leading index.

    The empirical characteristic function is marginal over q, so no capacity is sampled:
    φ̂(τ) = 1/N Σ_n Σ_k q(k | w_n) exp(iτ uᵀ M_k s_n). Every pair (sample, capacity) is one weighted sample.
    """
    num_samples = s.shape[-2]
    with full_precision(s.device):
        s, q, u, prior = (at_least_float32(tensor) for tensor in (s, q, u, prior))
        projections = masked_prefix_projections if path == "reference" else prefix_projections
        x = projections(s, u, support).flatten(-3, -2)
        weight = q.flatten(-2, -1) / num_samples
        real, imaginary = global_mean_cf(x, weight, quadrature, path)
        knots = quadrature.knots(x)
        if target == "mixture":
            aimed = prefix_mixture_cf(
                knots,
                u.broadcast_to(*s.shape[:-2], *u.shape[-2:]),
                prior.broadcast_to(*s.shape[:-2], prior.shape[-1]),
                support,
            )
        else:
            aimed = gaussian_cf(knots).view((1,) * (x.ndim - 2) + (-1, 1))
        return global_num_samples(num_samples) * discrepancy(real, imaginary, aimed, quadrature).mean(-1)


class MixSIGReg(nn.Module):
    """MixSIGReg with fresh random directions at every call.

    >>> import torch
    >>> regularizer = MixSIGReg(CapacitySupport((4, 8, 16)), prior_degree=1.0, num_projections=64)
    >>> latents, q = torch.randn(256, 4, 16), torch.rand(256, 3).softmax(-1)
    >>> loss = regularizer(latents, q, sample_axis=0, generator=torch.Generator().manual_seed(0))
    """

    prior: Tensor

    def __init__(
        self,
        support: CapacitySupport,
        prior_degree: float,
        num_projections: int = 1024,
        *,
        target: Target = "mixture",
        quadrature: Quadrature = EPPS_PULLEY,
        path: PathName = "auto",
    ) -> None:
        super().__init__()
        self.support = support
        self.num_projections = num_projections
        self.target: Target = target
        self.quadrature = quadrature
        self.path = path
        self.register_buffer("prior", polynomial_prior(len(support), prior_degree), persistent=False)

    def forward(
        self,
        s: Float[Tensor, "*shape D"],
        q: Float[Tensor, "N C"],
        *,
        sample_axis: int,
        generator: torch.Generator,
    ) -> Float[Tensor, ""]:
        """The statistic over `sample_axis`, which q runs along, averaged over the other axes (frame positions)."""
        self.support.of_width(s.shape[-1])
        samples = at_least_float32(samples_second_to_last(s, sample_axis))
        u = directions_for(samples, self.num_projections, generator)
        ones = (1,) * (samples.ndim - 2)
        statistic = mix_sigreg(
            samples,
            q.view(ones + q.shape).to(samples.dtype),
            u,
            self.prior.view(ones + self.prior.shape).to(samples.dtype),
            self.support,
            target=self.target,
            quadrature=self.quadrature,
            path=self.path,
        )
        return statistic.mean()
