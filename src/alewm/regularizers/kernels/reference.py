"""The definition all other paths are tested against."""

from alewm.capacity.prefix import prefix_masks
from alewm.capacity.support import CapacitySupport
from alewm.regularizers.quadrature import Quadrature
from alewm.shapes import Float, Tensor


def prefix_mixture_cf(
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
