"""Which path computes a characteristic function, and why."""

from dataclasses import dataclass
from typing import Literal

from alewm.capacity.support import CapacitySupport
from alewm.regularizers.kernels import native, recurrence, reference
from alewm.regularizers.kernels.compiler import NativeUnavailableError
from alewm.regularizers.quadrature import Quadrature
from alewm.shapes import Float, Tensor

PathName = Literal["auto", "reference", "recurrence", "native"]

_PATHS = {
    "reference": reference.prefix_mixture_cf,
    "recurrence": recurrence.prefix_mixture_cf,
    "native": native.prefix_mixture_cf,
}


@dataclass(frozen=True)
class Choice:
    """A path and the reason it was taken."""

    path: Literal["reference", "recurrence", "native"]
    reason: str


def choose(s: Tensor, support: CapacitySupport, quadrature: Quadrature, path: PathName = "auto") -> Choice:
    """The path that latents like `s` take."""
    if path in ("reference", "recurrence"):
        return Choice(path, "asked for")
    obstacle = native.why_not(s, support, quadrature)
    if obstacle is None:
        return Choice("native", "float32 on a CPU with a C compiler")
    if path == "native":
        raise NativeUnavailableError(f"The native path cannot be used: {obstacle}.")
    return Choice("recurrence", f"not native, because {obstacle}")


def prefix_mixture_cf(
    s: Float[Tensor, "*batch N D"],
    weight: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    support: CapacitySupport,
    quadrature: Quadrature,
    path: PathName = "auto",
) -> tuple[Float[Tensor, "*batch Q P"], Float[Tensor, "*batch Q P"]]:
    """Real and imaginary part of Σ_n Σ_k w(n, k) exp(iτ uᵀ M_k s_n) at the quadrature's knots."""
    return _PATHS[choose(s, support, quadrature, path).path](s, weight, u, support, quadrature)
