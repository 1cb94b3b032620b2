"""Which path computes a characteristic function, and why."""

from dataclasses import dataclass
from typing import Literal

from alewm.regularizers.kernels import native, reference
from alewm.regularizers.kernels.recurrence import RecurrentCharacteristicFunction
from alewm.regularizers.quadrature import Quadrature
from alewm.shapes import Float, Tensor

PathName = Literal["auto", "reference", "recurrence", "native"]


@dataclass(frozen=True)
class Choice:
    """A path and the reason it was taken."""

    path: Literal["reference", "recurrence", "native"]
    reason: str


def choose(x: Tensor, quadrature: Quadrature, path: PathName = "auto") -> Choice:
    """The path that tensors like `x` take."""
    if path in ("reference", "recurrence"):
        return Choice(path, "asked for")
    obstacle = native.why_not(x, quadrature.num_knots)
    if obstacle is None:
        return Choice("native", "float32 on a CPU with a C compiler")
    if path == "native":
        raise native.NativeUnavailableError(f"The native path cannot be used: {obstacle}.")
    return Choice("recurrence", f"not native, because {obstacle}")


def characteristic_function(
    x: Float[Tensor, "*batch N P"],
    weight: Float[Tensor, "*#batch N"],
    quadrature: Quadrature,
    path: PathName = "auto",
) -> tuple[Float[Tensor, "*batch Q P"], Float[Tensor, "*batch Q P"]]:
    """Real and imaginary part of Σ_n weight_n exp(i τ x_n) at the quadrature's knots, for every column of x."""
    groups = x.reshape(-1, *x.shape[-2:])
    weights = weight.expand(x.shape[:-1]).reshape(-1, x.shape[-2])
    taken = choose(groups, quadrature, path).path
    if taken == "reference":
        parts = reference.characteristic_function(groups, weights, quadrature.knots(groups))
    else:
        parts = RecurrentCharacteristicFunction.apply(  # type: ignore[no-untyped-call]
            groups, weights, quadrature.spacing, quadrature.num_knots, native if taken == "native" else None
        )
    real, imaginary = (part.reshape(*x.shape[:-2], quadrature.num_knots, x.shape[-1]) for part in parts)
    return real, imaginary
