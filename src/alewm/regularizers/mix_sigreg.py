"""MixSIGReg: how far the masked latent is from the prior-weighted mixture of Gaussian prefixes with zero suffixes."""

from typing import Literal

import torch

from alewm.capacity.support import CapacitySupport, polynomial_prior
from alewm.devices import at_least_float32, full_precision
from alewm.kernels.characteristic_function import PathName
from alewm.regularizers.inputs import check_distribution, check_latents, check_like, check_rows
from alewm.regularizers.quadrature import (
    EPPS_PULLEY,
    Directions,
    Quadrature,
    gaussian_cf,
    prefix_mixture_target,
    reach_of_directions,
    within_reach,
)
from alewm.regularizers.sigreg import SlicedRegularizer, along_samples, discrepancy, global_mean_cf, global_num_samples
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
    with full_precision(s.device):
        s, q, u, prior = (at_least_float32(tensor) for tensor in (s, q, u, prior))
        check_latents(s)
        num_samples = s.shape[-2]
        check_like("q", q, s, (num_samples, len(support)))
        check_like("prior", prior, s, (len(support),))
        check_distribution("q", q)
        check_distribution("prior", prior)
        real, imaginary = global_mean_cf(s, q / num_samples, u, support, quadrature, path)
        knots, ones = quadrature.knots(s), (1,) * (s.ndim - 2)
        if target == "mixture":
            aimed = prefix_mixture_target(knots, u, prior, support)
        else:
            aimed = gaussian_cf(knots).view(*ones, -1, 1)
        return global_num_samples(num_samples) * discrepancy(real, imaginary, aimed, quadrature).mean(-1)


class MixSIGReg(SlicedRegularizer):
    """MixSIGReg with fresh random directions at every call.

    >>> import torch
    >>> regularizer = MixSIGReg(CapacitySupport((4, 8, 16)), prior_degree=1.0, num_projections=64)
    >>> latents, q = torch.randn(256, 4, 16), torch.rand(256, 3).softmax(-1)
    >>> loss = regularizer(latents, q, sample_axis=0, generator=torch.Generator().manual_seed(0))
    """

    prior: Tensor
    reach: Tensor | None
    """Where each direction may point, [D, P]; None is everywhere."""

    def __init__(
        self,
        support: CapacitySupport,
        prior_degree: float,
        num_projections: int = 1024,
        *,
        target: Target = "mixture",
        directions: Directions = "sphere",
    ) -> None:
        super().__init__(num_projections)
        self.support = support
        self.target: Target = target
        reach = reach_of_directions(support, num_projections) if directions == "prefixes" else None
        self.register_buffer("reach", reach, persistent=False)
        self.register_buffer("prior", polynomial_prior(len(support), prior_degree), persistent=False)

    def directions(self, samples: Float[Tensor, "*batch N D"], generator: torch.Generator) -> Float[Tensor, "D P"]:
        """New directions for `samples`, each within its reach."""
        u = super().directions(samples, generator)
        return u if self.reach is None else within_reach(u, self.reach)

    def forward(
        self,
        s: Float[Tensor, "*shape D"],
        q: Float[Tensor, "N C"],
        *,
        sample_axis: int,
        generator: torch.Generator,
    ) -> Float[Tensor, ""]:
        """The statistic over `sample_axis`, which q runs along, averaged over the other axes (frame positions)."""
        check_rows("q", q, s, sample_axis, self.support)
        samples, u = self.samples_and_directions(s, sample_axis, generator)
        statistic = mix_sigreg(
            samples,
            along_samples(q, samples),
            u,
            along_samples(self.prior, samples),
            self.support,
            target=self.target,
        )
        return statistic.mean()
