"""The definition all other paths are tested against."""

import torch

from alewm.shapes import Float, Tensor


def characteristic_function(
    x: Float[Tensor, "G N P"], weight: Float[Tensor, "G N"], knots: Float[Tensor, "Q"]
) -> tuple[Float[Tensor, "G Q P"], Float[Tensor, "G Q P"]]:
    """Real and imaginary part of Σ_n weight_n exp(i τ x_n), by writing out every angle."""
    angle = knots[:, None, None] * x.unsqueeze(-3)
    return (
        torch.einsum("gn,gqnp->gqp", weight, angle.cos()),
        torch.einsum("gn,gqnp->gqp", weight, angle.sin()),
    )
