"""The characteristic function in C, for float32 on a CPU, without materialising the projections.

Calls release the interpreter, so the groups are shared among as many threads as torch uses; a group is never split,
which makes the result independent of their number.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import torch

from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError
from alewm.kernels.compiled import NativeUnavailableError, load_library
from alewm.regularizers.quadrature import Quadrature
from alewm.shapes import Float, Tensor

_SOURCE = Path(__file__).with_name("characteristic_function.c")
_FLAGS = ("-fno-math-errno",)
_MAX_KNOTS, _MAX_WIDTH, _MAX_CAPACITIES = 64, 1024, 64  # the sizes of the source's stack buffers
_SIZES: list[Any] = [ctypes.c_long] * 4 + [ctypes.c_int] * 2 + [ctypes.c_long, ctypes.c_int, ctypes.c_float]


def why_not(s: Tensor, support: CapacitySupport, quadrature: Quadrature, u: Tensor | None = None) -> str | None:
    """The reason for which latents like `s` and directions like `u` cannot take this path, or None if they can."""
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


def prefix_mixture_cf(
    s: Float[Tensor, "*batch N D"],
    weight: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    support: CapacitySupport,
    quadrature: Quadrature,
) -> tuple[Float[Tensor, "*batch Q P"], Float[Tensor, "*batch Q P"]]:
    """Real and imaginary part of Σ_n Σ_k w(n, k) exp(iτ uᵀ M_k s_n). Directions get no gradient."""
    batch = s.shape[:-2]
    own = len(batch)
    while own > 0 and weight.shape[own - 1] == u.shape[own - 1] == 1:
        own -= 1  # neighbouring groups from here on share weights and directions
    heads = batch[:own]
    weights = weight.expand(*heads, *weight.shape[own:]).reshape(-1, *weight.shape[-2:])
    directions = u.detach().expand(*heads, *u.shape[own:]).reshape(-1, *u.shape[-2:])
    parts = _PrefixMixture.apply(  # type: ignore[no-untyped-call]
        s.reshape(-1, *s.shape[-2:]), weights, directions, support, quadrature, prod(batch[own:])
    )
    real, imaginary = (part.view(*batch, quadrature.num_knots, u.shape[-1]) for part in parts)
    return real, imaginary


class _PrefixMixture(torch.autograd.Function):
    """s [G, N, D], weight [H, N, C] and u [H, D, P], where `shared` = G / H neighbouring groups use the same row."""

    @staticmethod
    def forward(
        ctx: Any, s: Tensor, weight: Tensor, u: Tensor, support: CapacitySupport, quadrature: Quadrature, shared: int
    ) -> Any:
        """Real and imaginary part, each [G, Q, P]."""
        s, weight, u = _plain(s), _plain(weight), _plain(u)
        ctx.save_for_backward(s, weight, u)
        ctx.support, ctx.quadrature, ctx.shared = support, quadrature, shared
        real = s.new_empty(s.shape[0], quadrature.num_knots, u.shape[2])
        imaginary = torch.empty_like(real)
        _call("prefix_mixture_forward", (s, weight, u), (real, imaginary), support, quadrature, shared)
        return real, imaginary

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_real: Tensor, grad_imaginary: Tensor) -> Any:
        """Gradients to s and to weight."""
        s, weight, u = ctx.saved_tensors
        grad_s = torch.zeros_like(s)
        grad_weight = weight.new_zeros(s.shape[0], *weight.shape[1:])
        gradients = (_plain(grad_real), _plain(grad_imaginary), grad_s, grad_weight)
        _call("prefix_mixture_backward", (s, weight, u), gradients, ctx.support, ctx.quadrature, ctx.shared)
        return grad_s, grad_weight.view(-1, ctx.shared, *weight.shape[1:]).sum(1), None, None, None, None


def _plain(tensor: Tensor) -> Tensor:
    """`tensor` as C reads it: contiguous, and with a pending change of sign carried out."""
    return tensor.contiguous().resolve_neg()


def _call(
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
    function: Callable[..., int] = _function(name, len(others))
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
    list(_threads(num_threads, os.getpid()).map(run, edges[:-1], edges[1:]))


def _check_buffer(tensor: Tensor, shape: tuple[int, ...]) -> None:
    is_readable = tensor.dtype is torch.float32 and tensor.is_cpu and tensor.layout is torch.strided
    if tensor.shape != shape or not is_readable or not tensor.is_contiguous() or tensor.is_neg():
        raise InputError(
            f"The C path takes contiguous float32 of shape {shape} on a CPU here, got {tensor.dtype} of shape "
            f"{tuple(tensor.shape)} and strides {tensor.stride()} on {tensor.device}."
        )


@cache
def _function(name: str, num_others: int) -> Callable[..., int]:
    function = getattr(load_library(_SOURCE, _FLAGS), name)
    function.argtypes = [ctypes.c_void_p] * (4 + num_others) + _SIZES
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]


@cache
def _threads(num_threads: int, process: int) -> ThreadPoolExecutor:
    """A thread pool per process: a forked child must not use its parent's."""
    del process
    return ThreadPoolExecutor(num_threads, thread_name_prefix="alewm-native")
