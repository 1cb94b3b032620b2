"""SIGReg: the distance of a latent from a standard normal along random directions (the paper's LeWM background).

`SlicedRegularizer` and the functions before it are shared by all regularizers. They fix the scale: the integrated
squared discrepancy times the global number of samples, averaged over projections. With that factor the expectation
under exact matching does not depend on the batch size.
"""

import torch
from torch import nn

from alewm.capacity.support import CapacitySupport
from alewm.devices import at_least_float32, full_precision
from alewm.distributed import mean_across_ranks, num_ranks
from alewm.errors import InputError
from alewm.kernels.characteristic_function import PathName, prefix_mixture_cf
from alewm.regularizers.inputs import check_latents, check_sample_axis
from alewm.regularizers.quadrature import EPPS_PULLEY, Quadrature, gaussian_cf, random_directions
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


class SlicedRegularizer(nn.Module):
    """A statistic along random directions that are drawn anew at every call."""

    def __init__(self, num_projections: int = 1024) -> None:
        super().__init__()
        if num_projections < 1:
            raise InputError(f"A statistic needs one direction or more, got num_projections={num_projections}.")
        self.num_projections = num_projections

    def samples_and_directions(
        self, s: Float[Tensor, "*shape D"], sample_axis: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, "*batch N D"], Float[Tensor, "*ones D P"]]:
        """`s` with the axis named by the caller second to last, and one set of directions for all other axes."""
        check_sample_axis(s, sample_axis)
        samples = at_least_float32(s.movedim(sample_axis, -2))
        return samples, _shared_by_all(self.directions(samples, generator), samples)

    def directions(self, samples: Float[Tensor, "*batch N D"], generator: torch.Generator) -> Float[Tensor, "D P"]:
        """New directions for `samples`: uniform on the sphere."""
        return random_directions(
            samples.shape[-1],
            self.num_projections,
            generator=generator,
            device=samples.device,
            dtype=samples.dtype,
        )


def _shared_by_all(value: Tensor, samples: Tensor) -> Tensor:
    """`value` with a leading axis of one for every batch axis of `samples`."""
    return value.view((1,) * (samples.ndim - 2) + value.shape)


def along_samples(value: Float[Tensor, "*shape"], samples: Float[Tensor, "*batch N D"]) -> Float[Tensor, "*wide"]:
    """Per-sample or per-capacity values, in the dtype of `samples` and shared by all their batch axes."""
    return _shared_by_all(value, samples).to(samples.dtype)


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
        return sigreg(samples, u).mean()
