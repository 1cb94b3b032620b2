"""SIGReg on active prefixes only: the regularizer of the nested-dropout baseline.

The paper gives it one sentence; these are our choices. Samples are grouped by their capacity k; directions are
renormalised to the active coordinates, u(1:k) / |u(1:k)|; each group is compared with a standard normal with factor
n_k, and the groups are averaged with weights n_k / B. Pooling all groups into one characteristic function is no
substitute: wide short prefixes and narrow long ones can then compensate for each other.
"""

import torch
from torch import nn

from alewm.capacity.support import CapacitySupport
from alewm.distributed import mean_across_ranks, num_ranks
from alewm.regularizers.epps_pulley import discrepancy, global_mean_cf, global_num_samples, samples_second_to_last
from alewm.regularizers.kernels.dispatch import PathName
from alewm.regularizers.precision import at_least_float32, full_precision
from alewm.regularizers.prefix_projection import prefix_projections
from alewm.regularizers.quadrature import EPPS_PULLEY, Quadrature, gaussian_cf
from alewm.regularizers.slices import directions_for
from alewm.shapes import Float, Tensor


def prefix_sigreg(
    s: Float[Tensor, "*batch N D"],
    choice: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    support: CapacitySupport,
    *,
    quadrature: Quadrature = EPPS_PULLEY,
    path: PathName = "auto",
) -> Float[Tensor, "*batch"]:
    """Σ_k (n_k / B) n_k ∫ w |φ̂_k - φ_N|², for a one-hot choice of capacity per sample."""
    with full_precision(s.device):
        s, choice, u = (at_least_float32(tensor) for tensor in (s, choice, u))
        ends = torch.tensor(support.capacities, device=u.device) - 1
        prefix_norm = u.square().cumsum(-2).index_select(-2, ends).sqrt()
        x = (prefix_projections(s, u, support) / prefix_norm.unsqueeze(-3)).transpose(-3, -2)
        member = choice.transpose(-2, -1)
        group_size = mean_across_ranks(member.sum(-1)) * num_ranks()
        weight = num_ranks() * member / group_size.clamp(min=1).unsqueeze(-1)
        real, imaginary = global_mean_cf(x, weight, quadrature, path)
        target = gaussian_cf(quadrature.knots(x)).view((1,) * (x.ndim - 2) + (-1, 1))
        statistic = group_size * discrepancy(real, imaginary, target, quadrature).mean(-1)
        return (statistic * group_size).sum(-1) / global_num_samples(s.shape[-2])


class PrefixSIGReg(nn.Module):
    """`prefix_sigreg` with fresh random directions at every call."""

    def __init__(
        self,
        support: CapacitySupport,
        num_projections: int = 1024,
        *,
        quadrature: Quadrature = EPPS_PULLEY,
        path: PathName = "auto",
    ) -> None:
        super().__init__()
        self.support = support
        self.num_projections = num_projections
        self.quadrature = quadrature
        self.path = path

    def forward(
        self,
        s: Float[Tensor, "*shape D"],
        choice: Float[Tensor, "N C"],
        *,
        sample_axis: int,
        generator: torch.Generator,
    ) -> Float[Tensor, ""]:
        """The statistic over `sample_axis`, averaged over the other axes (frame positions)."""
        self.support.of_width(s.shape[-1])
        samples = at_least_float32(samples_second_to_last(s, sample_axis))
        u = directions_for(samples, self.num_projections, generator)
        ones = (1,) * (samples.ndim - 2)
        statistic = prefix_sigreg(
            samples,
            choice.view(ones + choice.shape).to(samples.dtype),
            u,
            self.support,
            quadrature=self.quadrature,
            path=self.path,
        )
        return statistic.mean()
