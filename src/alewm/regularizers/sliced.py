"""What the regularizers share as modules: how many directions, which quadrature, which path."""

import torch
from torch import nn

from alewm.errors import InputError
from alewm.precision import at_least_float32
from alewm.regularizers.inputs import check_sample_axis
from alewm.regularizers.kernels.dispatch import PathName
from alewm.regularizers.quadrature import EPPS_PULLEY, Quadrature
from alewm.regularizers.slices import random_directions
from alewm.shapes import Float, Tensor


class SlicedRegularizer(nn.Module):
    """A statistic along random directions that are drawn anew at every call."""

    def __init__(
        self, num_projections: int = 1024, *, quadrature: Quadrature = EPPS_PULLEY, path: PathName = "auto"
    ) -> None:
        super().__init__()
        if num_projections < 1:
            raise InputError(f"A statistic needs one direction or more, got num_projections={num_projections}.")
        self.num_projections = num_projections
        self.quadrature = quadrature
        self.path: PathName = path

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
