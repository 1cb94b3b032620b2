"""The characteristic function of a weighted prefix mixture, Σ_n Σ_k w(n, k) exp(iτ uᵀ M_k s_n), and its fast paths.

`reference_cf` is the definition. `recurrence_cf` is plain torch on any device. `characteristic_function_c` (CPU) and
`characteristic_function_triton` (GPU) are the others. `choose` picks one and says why.

The knots are τ_j = j h, so cos and sin at all of them follow from those at h by angle addition: one transcendental pair
per projection instead of Q. The backward pass keeps only projections and weights and repeats the recurrence, so nothing
of size N x C x P x Q is ever stored.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from alewm.capacity.prefix import prefix_masks
from alewm.capacity.support import CapacitySupport
from alewm.devices import why_no_triton
from alewm.errors import InputError
from alewm.kernels import characteristic_function_c
from alewm.kernels.compiled import NativeUnavailableError
from alewm.regularizers.inputs import check_operands
from alewm.regularizers.quadrature import Quadrature
from alewm.shapes import Float, Tensor

_NARROW = 16
"""Up to this width, masking each prefix is faster than accumulating blocks."""


def project(s: Float[Tensor, "*batch N D"], u: Float[Tensor, "*#batch D P"]) -> Float[Tensor, "*batch N P"]:
    """uᵀ s. Batch axes that share their directions are folded into one large product instead of many small ones."""
    shared = 0
    while shared < u.ndim - 2 and u.shape[u.ndim - 3 - shared] == 1:
        shared += 1
    own = u.ndim - 2 - shared
    rows, directions = s.flatten(own, -2), u.reshape(*u.shape[:own], *u.shape[-2:])
    return (rows @ directions).view(*s.shape[:-1], u.shape[-1])


def prefix_projections(
    s: Float[Tensor, "*batch N D"], u: Float[Tensor, "*#batch D P"], support: CapacitySupport
) -> Float[Tensor, "*batch N C P"]:
    """uᵀ M_k s for every capacity k."""
    if support.latent_dim <= _NARROW:
        return masked_prefix_projections(s, u, support)
    return accumulated_prefix_projections(s, u, support)


def masked_prefix_projections(
    s: Float[Tensor, "*batch N D"], u: Float[Tensor, "*#batch D P"], support: CapacitySupport
) -> Float[Tensor, "*batch N C P"]:
    """By the definition: mask, then project."""
    masked = s.unsqueeze(-2) * prefix_masks(support, device=s.device, dtype=s.dtype)
    return project(masked.flatten(-3, -2), u).view(*s.shape[:-1], len(support), u.shape[-1])


def accumulated_prefix_projections(
    s: Float[Tensor, "*batch N D"], u: Float[Tensor, "*#batch D P"], support: CapacitySupport
) -> Float[Tensor, "*batch N C P"]:
    """Each block of coordinates is projected once and added to the prefix before it."""
    s_blocks = torch.split(s, list(support.block_sizes), dim=-1)
    u_blocks = torch.split(u, list(support.block_sizes), dim=-2)
    running: Tensor | None = None
    prefixes = []
    for s_block, u_block in zip(s_blocks, u_blocks, strict=True):
        projected = project(s_block, u_block)
        running = projected if running is None else running + projected
        prefixes.append(running)
    return torch.stack(prefixes, dim=-2)


def reference_cf(
    s: Float[Tensor, "*batch N D"],
    weight: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    support: CapacitySupport,
    quadrature: Quadrature,
) -> tuple[Float[Tensor, "*batch Q P"], Float[Tensor, "*batch Q P"]]:
    """Real and imaginary part of Σ_n Σ_k w(n, k) exp(iτ uᵀ M_k s_n): mask, project, and write out every angle."""
    masked = s.unsqueeze(-2) * prefix_masks(support, device=s.device, dtype=s.dtype)
    projected = masked @ u.unsqueeze(-3)
    angle = quadrature.knots(s)[:, None, None, None] * projected.unsqueeze(-4)
    weight = weight.unsqueeze(-3).unsqueeze(-1)
    return (weight * angle.cos()).sum((-3, -2)), (weight * angle.sin()).sum((-3, -2))


def recurrence_cf(
    s: Float[Tensor, "*batch N D"],
    weight: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    support: CapacitySupport,
    quadrature: Quadrature,
) -> tuple[Float[Tensor, "*batch Q P"], Float[Tensor, "*batch Q P"]]:
    """Real and imaginary part of Σ_n Σ_k w(n, k) exp(iτ uᵀ M_k s_n); every pair (sample, capacity) is one sample."""
    batch, projections = s.shape[:-2], u.shape[-1]
    x = prefix_projections(s, u, support).reshape(-1, s.shape[-2] * len(support), projections)
    weights = weight.expand(*batch, *weight.shape[-2:]).reshape(x.shape[:2])
    parts = _CharacteristicFunction.apply(x, weights, quadrature)  # type: ignore[no-untyped-call]
    real, imaginary = (part.view(*batch, quadrature.num_knots, projections) for part in parts)
    return real, imaginary


def _powers(x: Tensor, quadrature: Quadrature) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(j, cos(j h x), sin(j h x)) for j = 1 ... Q - 1; the tensors are overwritten by the next step."""
    step_cos, step_sin = (quadrature.spacing * x).cos_(), (quadrature.spacing * x).sin_()
    cos, sin = step_cos.clone(), step_sin.clone()
    spare = torch.empty_like(x)
    for j in range(1, quadrature.num_knots):
        yield j, cos, sin
        if j < quadrature.num_knots - 1:
            torch.mul(sin, step_sin, out=spare)
            sin.mul_(step_cos).addcmul_(cos, step_sin)
            cos.mul_(step_cos).sub_(spare)


class _CharacteristicFunction(torch.autograd.Function):
    """Σ_n weight_n exp(i j h x_n) for j = 0 ... Q - 1, with x [G, N, P] and weight [G, N]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, quadrature: Quadrature) -> Any:
        """Real and imaginary part, each [G, Q, P]."""
        ctx.save_for_backward(x, weight)
        ctx.quadrature = quadrature
        row = weight.unsqueeze(-2)
        real = x.new_empty(x.shape[0], quadrature.num_knots, x.shape[2])
        imaginary = torch.zeros_like(real)
        real[:, 0] = weight.sum(-1, keepdim=True)
        for j, cos, sin in _powers(x, quadrature):
            real[:, j] = (row @ cos).squeeze(-2)
            imaginary[:, j] = (row @ sin).squeeze(-2)
        return real, imaginary

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_real: Tensor, grad_imaginary: Tensor) -> Any:
        """Gradients to x and to weight."""
        x, weight = ctx.saved_tensors
        value, slope = torch.zeros_like(x), torch.zeros_like(x)
        for j, cos, sin in _powers(x, ctx.quadrature):
            a, b = grad_real[:, j, None], grad_imaginary[:, j, None]
            value.addcmul_(cos, a).addcmul_(sin, b)
            slope.addcmul_(cos, b, value=j * ctx.quadrature.spacing).addcmul_(sin, a, value=-j * ctx.quadrature.spacing)
        grad_weight = value.sum(-1) + grad_real[:, 0].sum(-1, keepdim=True)
        return slope.mul_(weight.unsqueeze(-1)), grad_weight, None


PathName = Literal["auto", "reference", "recurrence", "native", "gpu"]

CharacteristicFunction = Callable[
    [Tensor, Tensor, Tensor, CapacitySupport, Quadrature],
    tuple[Tensor, Tensor],
]

_PATHS: dict[str, CharacteristicFunction] = {
    "reference": reference_cf,
    "recurrence": recurrence_cf,
    "native": characteristic_function_c.prefix_mixture_cf,
}


class GpuPathUnavailableError(InputError):
    """The GPU path was asked for by name where it cannot run."""


@dataclass(frozen=True)
class Choice:
    """A path and the reason it was taken."""

    path: Literal["reference", "recurrence", "native", "gpu"]
    reason: str


def choose(
    s: Tensor, support: CapacitySupport, quadrature: Quadrature, path: PathName = "auto", u: Tensor | None = None
) -> Choice:
    """The path that latents like `s` and directions like `u` take."""
    if path in ("reference", "recurrence"):
        return Choice(path, "asked for")
    no_gpu = why_no_gpu_path(s, u)
    if no_gpu is None and path in ("auto", "gpu"):
        return Choice("gpu", "float32 on a GPU with Triton")
    if path == "gpu":
        raise GpuPathUnavailableError(f"The GPU path cannot be used: {no_gpu}.")
    no_native = characteristic_function_c.why_not(s, support, quadrature, u)
    if no_native is None:
        return Choice("native", "float32 on a CPU with a C compiler")
    if path == "native":
        raise NativeUnavailableError(f"The native path cannot be used: {no_native}.")
    return Choice("recurrence", f"not native, because {no_native}; not gpu, because {no_gpu}")


def why_no_gpu_path(s: Tensor, u: Tensor | None = None) -> str | None:
    """The reason the Triton kernels cannot take such latents, or None."""
    if s.device.type != "cuda":
        return f"the latents are on the {s.device.type}"
    if s.dtype != torch.float32:
        return f"the latents are {s.dtype}"
    if u is not None and u.requires_grad:
        return "the directions need a gradient"
    return why_no_triton(s.device)


def prefix_mixture_cf(
    s: Float[Tensor, "*batch N D"],
    weight: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    support: CapacitySupport,
    quadrature: Quadrature,
    path: PathName = "auto",
) -> tuple[Float[Tensor, "*batch Q P"], Float[Tensor, "*batch Q P"]]:
    """Real and imaginary part of Σ_n Σ_k w(n, k) exp(iτ uᵀ M_k s_n) at the quadrature's knots."""
    check_operands(s, weight, u, support)
    chosen = choose(s, support, quadrature, path, u).path
    if chosen == "gpu":
        from alewm.kernels import characteristic_function_triton

        return characteristic_function_triton.prefix_mixture_cf(s, weight, u, support, quadrature)
    return _PATHS[chosen](s, weight, u, support, quadrature)
