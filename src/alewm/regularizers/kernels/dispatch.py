"""Which path computes a characteristic function, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from alewm.capacity.support import CapacitySupport
from alewm.devices import why_no_triton
from alewm.errors import InputError
from alewm.native import NativeUnavailableError
from alewm.regularizers.inputs import check_operands
from alewm.regularizers.kernels import native, recurrence, reference
from alewm.regularizers.quadrature import Quadrature
from alewm.shapes import Float, Tensor

PathName = Literal["auto", "reference", "recurrence", "native", "gpu"]

CharacteristicFunction = Callable[
    [Tensor, Tensor, Tensor, CapacitySupport, Quadrature],
    tuple[Tensor, Tensor],
]

_PATHS: dict[str, CharacteristicFunction] = {
    "reference": reference.prefix_mixture_cf,
    "recurrence": recurrence.prefix_mixture_cf,
    "native": native.prefix_mixture_cf,
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
    no_native = native.why_not(s, support, quadrature, u)
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
        from alewm.regularizers.kernels import gpu  # importing Triton takes a second, which only GPUs should cost

        return gpu.prefix_mixture_cf(s, weight, u, support, quadrature)
    return _PATHS[chosen](s, weight, u, support, quadrature)
