"""The characteristic function of a weighted prefix mixture, Σ_n Σ_k w(n, k) exp(iτ uᵀ M_k s_n), and its fast paths.

`reference_cf` is the definition. `recurrence_cf` is plain torch on any device, `native_cf` is in C for CPUs, and
`characteristic_function_triton` has the kernels for GPUs. `choose` picks one and says why.

The knots are τ_j = j h, so cos and sin at all of them follow from those at h by angle addition: one transcendental pair
per projection instead of Q. The backward pass keeps only projections and weights and repeats the recurrence, so nothing
of size N x C x P x Q is ever stored.
"""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch

from alewm.capacity.support import CapacitySupport, prefix_masks
from alewm.devices import why_no_triton
from alewm.errors import InputError
from alewm.kernels.compiled import NativeUnavailableError, load_library, thread_pool
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


_SOURCE = Path(__file__).with_name("characteristic_function.c")
_FLAGS = ("-fno-math-errno",)
_MAX_KNOTS, _MAX_WIDTH, _MAX_CAPACITIES = 64, 1024, 64  # the sizes of the source's stack buffers
_SIZES: list[Any] = [ctypes.c_long] * 4 + [ctypes.c_int] * 2 + [ctypes.c_long, ctypes.c_int, ctypes.c_float]


def why_no_native_path(
    s: Tensor, support: CapacitySupport, quadrature: Quadrature, u: Tensor | None = None
) -> str | None:
    """The reason for which latents like `s` and directions like `u` cannot take the C path, or None if they can."""
    if s.device.type != "cpu":
        return f"the latents are on {s.device.type}"
    if s.dtype != torch.float32:
        return f"the latents are {s.dtype}"
    if u is not None and u.requires_grad:
        return "the directions need a gradient"
    if quadrature.num_knots > _MAX_KNOTS or support.latent_dim > _MAX_WIDTH or len(support) > _MAX_CAPACITIES:
        return f"it is built for up to {_MAX_KNOTS} knots, {_MAX_WIDTH} coordinates and {_MAX_CAPACITIES} capacities"
    try:
        load_library(_SOURCE, _FLAGS)
    except NativeUnavailableError as error:
        return str(error)
    return None


def native_cf(
    s: Float[Tensor, "*batch N D"],
    weight: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    support: CapacitySupport,
    quadrature: Quadrature,
) -> tuple[Float[Tensor, "*batch Q P"], Float[Tensor, "*batch Q P"]]:
    """Real and imaginary part of Σ_n Σ_k w(n, k) exp(iτ uᵀ M_k s_n), in C for float32 on a CPU.

    Projections are never materialised. Directions get no gradient. Calls release the interpreter, so the groups are
    shared among as many threads as torch uses; a group is never split, which makes the result independent of their
    number.
    """
    batch = s.shape[:-2]
    own = len(batch)
    while own > 0 and weight.shape[own - 1] == u.shape[own - 1] == 1:
        own -= 1  # neighbouring groups from here on share weights and directions
    heads = batch[:own]
    weights = weight.expand(*heads, *weight.shape[own:]).reshape(-1, *weight.shape[-2:])
    directions = u.detach().expand(*heads, *u.shape[own:]).reshape(-1, *u.shape[-2:])
    parts = _NativePrefixMixture.apply(  # type: ignore[no-untyped-call]
        s.reshape(-1, *s.shape[-2:]), weights, directions, support, quadrature, prod(batch[own:])
    )
    real, imaginary = (part.view(*batch, quadrature.num_knots, u.shape[-1]) for part in parts)
    return real, imaginary


class _NativePrefixMixture(torch.autograd.Function):
    """s [G, N, D], weight [H, N, C] and u [H, D, P], where `shared` = G / H neighbouring groups use the same row."""

    @staticmethod
    def forward(
        ctx: Any, s: Tensor, weight: Tensor, u: Tensor, support: CapacitySupport, quadrature: Quadrature, shared: int
    ) -> Any:
        """Real and imaginary part, each [G, Q, P]."""
        s, weight, u = _as_c_reads(s), _as_c_reads(weight), _as_c_reads(u)
        ctx.save_for_backward(s, weight, u)
        ctx.support, ctx.quadrature, ctx.shared = support, quadrature, shared
        real = s.new_empty(s.shape[0], quadrature.num_knots, u.shape[2])
        imaginary = torch.empty_like(real)
        _call_native("prefix_mixture_forward", (s, weight, u), (real, imaginary), support, quadrature, shared)
        return real, imaginary

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_real: Tensor, grad_imaginary: Tensor) -> Any:
        """Gradients to s and to weight."""
        s, weight, u = ctx.saved_tensors
        grad_s = torch.zeros_like(s)
        grad_weight = weight.new_zeros(s.shape[0], *weight.shape[1:])
        gradients = (_as_c_reads(grad_real), _as_c_reads(grad_imaginary), grad_s, grad_weight)
        _call_native("prefix_mixture_backward", (s, weight, u), gradients, ctx.support, ctx.quadrature, ctx.shared)
        return grad_s, grad_weight.view(-1, ctx.shared, *weight.shape[1:]).sum(1), None, None, None, None


def _as_c_reads(tensor: Tensor) -> Tensor:
    """`tensor` as C reads it: contiguous, and with a pending change of sign carried out."""
    return tensor.contiguous().resolve_neg()


def _call_native(
    name: str,
    inputs: tuple[Tensor, Tensor, Tensor],
    others: tuple[Tensor, ...],
    support: CapacitySupport,
    quadrature: Quadrature,
    shared: int,
) -> None:
    """Runs a C function over all groups, shared among torch's number of threads.

    All calls to the C functions pass here, and here all sizes are checked.
    """
    (G, N, D), P, C, Q = inputs[0].shape, inputs[2].shape[2], len(support), quadrature.num_knots
    H = G // max(shared, 1)
    results = [(G, Q, P), (G, Q, P), (G, N, D), (G, N, C)][: len(others)]
    for tensor, shape in zip((*inputs, *others), [(H * shared, N, D), (H, N, C), (H, D, P), *results], strict=True):
        _check_buffer(tensor, shape)
    ends = (ctypes.c_int * C)(*support.capacities)
    function: Callable[..., int] = _native_function(name, len(others))
    pointers = (*(t.data_ptr() for t in inputs), ctypes.addressof(ends), *(t.data_ptr() for t in others))

    def run(first: int, last: int) -> None:
        if function(*pointers, first, last, shared, N, D, C, P, Q, quadrature.spacing):
            raise InputError(
                f"{name} cannot take {N} samples of {D} coordinates, capacities {support.capacities}, {P} directions "
                f"and {Q} knots; choose the path 'recurrence'."
            )

    num_threads = min(torch.get_num_threads(), G)
    if num_threads <= 1:
        run(0, G)
        return
    edges = [G * thread // num_threads for thread in range(num_threads + 1)]
    list(thread_pool(num_threads, "native").map(run, edges[:-1], edges[1:]))


def _check_buffer(tensor: Tensor, shape: tuple[int, ...]) -> None:
    is_readable = tensor.dtype is torch.float32 and tensor.is_cpu and tensor.layout is torch.strided
    if tensor.shape != shape or not is_readable or not tensor.is_contiguous() or tensor.is_neg():
        raise InputError(
            f"The C path takes contiguous float32 of shape {shape} on a CPU here, got {tensor.dtype} of shape "
            f"{tuple(tensor.shape)} and strides {tensor.stride()} on {tensor.device}."
        )


@cache
def _native_function(name: str, num_others: int) -> Callable[..., int]:
    function = getattr(load_library(_SOURCE, _FLAGS), name)
    function.argtypes = [ctypes.c_void_p] * (4 + num_others) + _SIZES
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]


PathName = Literal["auto", "reference", "recurrence", "native", "gpu"]

CharacteristicFunction = Callable[
    [Tensor, Tensor, Tensor, CapacitySupport, Quadrature],
    tuple[Tensor, Tensor],
]

_PATHS: dict[str, CharacteristicFunction] = {
    "reference": reference_cf,
    "recurrence": recurrence_cf,
    "native": native_cf,
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
    no_native = why_no_native_path(s, support, quadrature, u)
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
