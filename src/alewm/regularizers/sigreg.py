"""SIGReg: how far a latent is from a standard normal, along random directions (the paper's LeWM background)."""

import torch

from alewm.capacity.support import CapacitySupport
from alewm.devices import at_least_float32, full_precision
from alewm.kernels.characteristic_function import PathName
from alewm.regularizers.inputs import check_latents
from alewm.regularizers.quadrature import EPPS_PULLEY, Quadrature, gaussian_cf
from alewm.regularizers.sliced import SlicedRegularizer, discrepancy, global_mean_cf, global_num_samples
from alewm.shapes import Float, Tensor


def sigreg(
    s: Float[Tensor, "*batch N D"],
    u: Float[Tensor, "*#batch D P"],
    *,
    quadrature: Quadrature = EPPS_PULLEY,
    path: PathName = "auto",
) -> Float[Tensor, "*batch"]:
    """The statistic of N latents against N(0, I) along given directions, one number per leading index."""
    with full_precision(s.device):
        s, u = at_least_float32(s), at_least_float32(u)
        check_latents(s)
        ones, num_samples = (1,) * (s.ndim - 2), s.shape[-2]
        weight = s.new_full((*ones, num_samples, 1), 1 / num_samples)
        real, imaginary = global_mean_cf(s, weight, u, CapacitySupport.full(s.shape[-1]), quadrature, path)
        target = gaussian_cf(quadrature.knots(s)).view(*ones, -1, 1)
        return global_num_samples(num_samples) * discrepancy(real, imaginary, target, quadrature).mean(-1)


class SIGReg(SlicedRegularizer):
    """SIGReg with fresh random directions at every call.

    >>> import torch
    >>> regularizer = SIGReg(num_projections=64)
    >>> latents = torch.randn(256, 4, 16)  # windows, frames, coordinates
    >>> loss = regularizer(latents, sample_axis=0, generator=torch.Generator().manual_seed(0))
    """

    def forward(
        self, s: Float[Tensor, "*shape D"], *, sample_axis: int, generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """The statistic over `sample_axis`, averaged over the other axes (frame positions)."""
        samples, u = self.samples_and_directions(s, sample_axis, generator)
        return sigreg(samples, u, quadrature=self.quadrature, path=self.path).mean()
