"""The characteristic function by angle addition, in plain torch on any device.

The knots are τ_j = j h, so cos and sin at all of them follow from those at h: one transcendental pair per projection
instead of Q. The backward pass keeps only projections and weights and runs the recurrence again, so nothing of size
N x C x P x Q ever exists. All arithmetic is in place on four buffers of the size of the projections.
"""

from collections.abc import Iterator
from typing import Any

import torch

from alewm.capacity.support import CapacitySupport
from alewm.regularizers.prefix_projection import prefix_projections
from alewm.regularizers.quadrature import Quadrature
from alewm.shapes import Float, Tensor


def prefix_mixture_cf(
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
