"""SIGReg: how far a latent is from a standard normal, along random directions (the paper's LeWM background)."""

import torch
from torch import nn

from alewm.regularizers.epps_pulley import discrepancy, global_mean_cf, global_num_samples, samples_second_to_last
from alewm.regularizers.kernels.dispatch import PathName
from alewm.regularizers.precision import at_least_float32, full_precision
from alewm.regularizers.prefix_projection import project
from alewm.regularizers.quadrature import EPPS_PULLEY, Quadrature, gaussian_cf
from alewm.regularizers.slices import directions_for
from alewm.shapes import Float, Tensor


def sigreg(
    s: Float[Tensor, "*batch N D"],
    u: Float[Tensor, "*#batch D P"],
    *,
    quadrature: Quadrature = EPPS_PULLEY,
    path: PathName = "auto",
) -> Float[Tensor, "*batch"]:
    """The statistic of N latents against N(0, I) along given directions, one number per leading index."""
    num_samples = s.shape[-2]
    with full_precision(s.device):
        x = project(at_least_float32(s), at_least_float32(u))
        weight = x.new_full((1,) * (x.ndim - 2) + (num_samples,), 1 / num_samples)
        real, imaginary = global_mean_cf(x, weight, quadrature, path)
        target = gaussian_cf(quadrature.knots(x)).view((1,) * (x.ndim - 2) + (-1, 1))
        return global_num_samples(num_samples) * discrepancy(real, imaginary, target, quadrature).mean(-1)


class SIGReg(nn.Module):
    """SIGReg with fresh random directions at every call.

    >>> import torch
    >>> regularizer = SIGReg(num_projections=64)
    >>> latents = torch.randn(256, 4, 16)  # windows, frames, coordinates
    >>> loss = regularizer(latents, sample_axis=0, generator=torch.Generator().manual_seed(0))
    """

    def __init__(
        self, num_projections: int = 1024, *, quadrature: Quadrature = EPPS_PULLEY, path: PathName = "auto"
    ) -> None:
        super().__init__()
        self.num_projections = num_projections
        self.quadrature = quadrature
        self.path = path

    def forward(
        self, s: Float[Tensor, "*shape D"], *, sample_axis: int, generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """The statistic over `sample_axis`, averaged over the other axes (frame positions)."""
        samples = at_least_float32(samples_second_to_last(s, sample_axis))
        u = directions_for(samples, self.num_projections, generator)
        return sigreg(samples, u, quadrature=self.quadrature, path=self.path).mean()
