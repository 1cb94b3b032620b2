"""SIGReg on active prefixes only: the regularizer of the nested-dropout baseline.

The paper gives it one sentence; these are our choices. Samples are grouped by their capacity k; directions are
renormalised to the active coordinates, u(1:k) / |u(1:k)|; each group is compared with a standard normal with factor
n_k, and the groups are averaged with weights n_k / B. Pooling all groups into one characteristic function is no
substitute: wide short prefixes and narrow long ones can then compensate for each other.
"""

import torch

from alewm.capacity.prefix import prefix_masks
from alewm.capacity.support import CapacitySupport
from alewm.devices import at_least_float32, full_precision
from alewm.distributed import mean_across_ranks, num_ranks
from alewm.kernels.characteristic_function import PathName
from alewm.regularizers.inputs import check_distribution, check_operands, check_rows
from alewm.regularizers.quadrature import EPPS_PULLEY, Quadrature, gaussian_cf, within_reach
from alewm.regularizers.sigreg import SlicedRegularizer, along_samples, discrepancy, global_mean_cf, global_num_samples
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
        check_operands(s, choice, u, support, "choice")
        check_distribution("choice", choice, one_hot=True)
        # One group per capacity k: its members weigh 1 / n_k, its directions are u(1:k) / |u(1:k)|.
        masks = prefix_masks(support, device=u.device, dtype=u.dtype)
        active = within_reach(u.unsqueeze(-3), masks.unsqueeze(-1))
        member = choice.transpose(-2, -1)
        group_size = mean_across_ranks(member.sum(-1)) * num_ranks()
        weight = num_ranks() * member / group_size.clamp(min=1).unsqueeze(-1)
        groups = s.unsqueeze(-3).expand(*s.shape[:-2], len(support), *s.shape[-2:])
        everything = CapacitySupport.full(support.latent_dim)
        real, imaginary = global_mean_cf(groups, weight.unsqueeze(-1), active, everything, quadrature, path)
        target = gaussian_cf(quadrature.knots(s)).view((1,) * (groups.ndim - 2) + (-1, 1))
        statistic = group_size * discrepancy(real, imaginary, target, quadrature).mean(-1)
        return (statistic * group_size).sum(-1) / global_num_samples(s.shape[-2])


class PrefixSIGReg(SlicedRegularizer):
    """`prefix_sigreg` with fresh random directions at every call."""

    def __init__(self, support: CapacitySupport, num_projections: int = 1024) -> None:
        super().__init__(num_projections)
        self.support = support

    def forward(
        self,
        s: Float[Tensor, "*shape D"],
        choice: Float[Tensor, "N C"],
        *,
        sample_axis: int,
        generator: torch.Generator,
    ) -> Float[Tensor, ""]:
        """The statistic over `sample_axis`, averaged over the other axes (frame positions)."""
        check_rows("choice", choice, s, sample_axis, self.support)
        samples, u = self.samples_and_directions(s, sample_axis, generator)
        return prefix_sigreg(samples, along_samples(choice, samples), u, self.support).mean()
