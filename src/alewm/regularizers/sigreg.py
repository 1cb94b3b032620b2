"""The regularizers: SIGReg (LeWM), MixSIGReg (ALeWM), and SIGReg on active prefixes only (nested dropout).

All compare a latent with a target distribution along random directions, and share one scale: the integrated squared
discrepancy times the global number of samples, averaged over projections. With that factor the expectation under exact
matching does not depend on the batch size.
"""

from typing import Literal

import torch
from torch import nn

from alewm.capacity.support import CapacitySupport, polynomial_prior, prefix_masks
from alewm.devices import at_least_float32, full_precision
from alewm.distributed import mean_across_ranks, num_ranks
from alewm.errors import InputError
from alewm.kernels.characteristic_function import PathName, prefix_mixture_cf
from alewm.regularizers.inputs import (
    check_distribution,
    check_latents,
    check_like,
    check_operands,
    check_rows,
    check_sample_axis,
)
from alewm.regularizers.quadrature import (
    EPPS_PULLEY,
    Directions,
    gaussian_cf,
    prefix_mixture_target,
    random_directions,
    reach_of_directions,
    within_reach,
)
from alewm.shapes import Float, Tensor


def global_mean_cf(
    s: Float[Tensor, "*batch N D"],
    weight: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    support: CapacitySupport,
    path: PathName,
) -> tuple[Float[Tensor, "*batch Q P"], Float[Tensor, "*batch Q P"]]:
    """The weighted characteristic function averaged over ranks, by a single all-reduce inside autograd."""
    local = torch.stack(prefix_mixture_cf(s, weight, u, support, EPPS_PULLEY, path))
    real, imaginary = mean_across_ranks(local).unbind()
    return real, imaginary


def discrepancy(
    real: Float[Tensor, "*batch Q P"],
    imaginary: Float[Tensor, "*batch Q P"],
    target: Float[Tensor, "*#batch Q #P"],
) -> Float[Tensor, "*batch P"]:
    """∫ w(τ) |φ̂(τ) - φ_0(τ)|² dτ along every direction; the targets here are all real."""
    square = (real - target).square() + imaginary.square()
    return torch.einsum("...qp,q->...p", square, EPPS_PULLEY.weights(square))


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
    path: PathName = "auto",
) -> Float[Tensor, "*batch"]:
    """The statistic of N latents against N(0, I) along given directions, one number per leading index."""
    with full_precision(s.device):
        s, u = at_least_float32(s), at_least_float32(u)
        check_latents(s)
        ones, num_samples = (1,) * (s.ndim - 2), s.shape[-2]
        weight = s.new_full((*ones, num_samples, 1), 1 / num_samples)
        real, imaginary = global_mean_cf(s, weight, u, CapacitySupport.full(s.shape[-1]), path)
        target = gaussian_cf(EPPS_PULLEY.knots(s)).view(*ones, -1, 1)
        return num_samples * num_ranks() * discrepancy(real, imaginary, target).mean(-1)


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
        real, imaginary = global_mean_cf(s, q / num_samples, u, support, path)
        knots, ones = EPPS_PULLEY.knots(s), (1,) * (s.ndim - 2)
        if target == "mixture":
            aimed = prefix_mixture_target(knots, u, prior, support)
        else:
            aimed = gaussian_cf(knots).view(*ones, -1, 1)
        return num_samples * num_ranks() * discrepancy(real, imaginary, aimed).mean(-1)


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


def prefix_sigreg(
    s: Float[Tensor, "*batch N D"],
    choice: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    support: CapacitySupport,
    *,
    path: PathName = "auto",
) -> Float[Tensor, "*batch"]:
    """Σ_k (n_k / B) n_k ∫ w |φ̂_k - φ_N|², for a one-hot choice of capacity per sample.

    The paper gives this regularizer one sentence; the details are our choices. Samples are grouped by their capacity k.
    Directions are renormalised to the active coordinates. Each group is compared with a standard normal with factor
    n_k, and the groups are averaged with weights n_k / B. Pooling all groups into one characteristic function is no
    substitute: wide short prefixes and narrow long ones can then compensate for each other.
    """
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
        real, imaginary = global_mean_cf(groups, weight.unsqueeze(-1), active, everything, path)
        target = gaussian_cf(EPPS_PULLEY.knots(s)).view((1,) * (groups.ndim - 2) + (-1, 1))
        statistic = group_size * discrepancy(real, imaginary, target).mean(-1)
        return (statistic * group_size).sum(-1) / (s.shape[-2] * num_ranks())


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
