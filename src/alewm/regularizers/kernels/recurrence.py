"""The characteristic function by angle addition.

The knots are τ_j = j h, so cos and sin at all of them follow from those at h: one transcendental pair per sample
instead of Q. The backward pass keeps only the inputs and runs the recurrence again, so nothing of size N x P x Q ever
exists. All arithmetic is in place on four buffers of the size of x.
"""

from collections.abc import Iterator
from typing import Any

import torch

from alewm.shapes import Float, Tensor


def _powers(x: Tensor, spacing: float, num_knots: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(j, cos(j h x), sin(j h x)) for j = 1 ... Q - 1; the tensors are overwritten by the next step."""
    step_cos, step_sin = (spacing * x).cos_(), (spacing * x).sin_()
    cos, sin = step_cos.clone(), step_sin.clone()
    spare = torch.empty_like(x)
    for j in range(1, num_knots):
        yield j, cos, sin
        if j < num_knots - 1:
            torch.mul(sin, step_sin, out=spare)
            sin.mul_(step_cos).addcmul_(cos, step_sin)
            cos.mul_(step_cos).sub_(spare)


def forward(
    x: Float[Tensor, "G N P"], weight: Float[Tensor, "G N"], spacing: float, num_knots: int
) -> tuple[Float[Tensor, "G Q P"], Float[Tensor, "G Q P"]]:
    """Real and imaginary part of Σ_n weight_n exp(i j h x_n) for j = 0 ... Q - 1."""
    row = weight.unsqueeze(-2)
    real = x.new_empty(x.shape[0], num_knots, x.shape[2])
    imaginary = torch.zeros_like(real)
    real[:, 0] = weight.sum(-1, keepdim=True)
    for j, cos, sin in _powers(x, spacing, num_knots):
        real[:, j] = (row @ cos).squeeze(-2)
        imaginary[:, j] = (row @ sin).squeeze(-2)
    return real, imaginary


def backward(
    x: Float[Tensor, "G N P"],
    weight: Float[Tensor, "G N"],
    spacing: float,
    grad_real: Float[Tensor, "G Q P"],
    grad_imaginary: Float[Tensor, "G Q P"],
) -> tuple[Float[Tensor, "G N P"], Float[Tensor, "G N"]]:
    """Gradients to x and to weight."""
    value = torch.zeros_like(x)
    slope = torch.zeros_like(x)
    for j, cos, sin in _powers(x, spacing, grad_real.shape[1]):
        a, b = grad_real[:, j, None], grad_imaginary[:, j, None]
        value.addcmul_(cos, a).addcmul_(sin, b)
        slope.addcmul_(cos, b, value=j * spacing).addcmul_(sin, a, value=-j * spacing)
    grad_weight = value.sum(-1) + grad_real[:, 0].sum(-1, keepdim=True)
    return slope.mul_(weight.unsqueeze(-1)), grad_weight


class RecurrentCharacteristicFunction(torch.autograd.Function):
    """`forward` and `backward` joined, with the native path inside where `native` is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, spacing: float, num_knots: int, native: Any) -> Any:
        """Real and imaginary part; see the module's `forward`."""
        x, weight = x.contiguous(), weight.contiguous()
        ctx.save_for_backward(x, weight)
        ctx.spacing, ctx.native = spacing, native
        return (native.forward if native else forward)(x, weight, spacing, num_knots)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_real: Tensor, grad_imaginary: Tensor) -> Any:
        """Gradients to x and weight, and to nothing else."""
        run = ctx.native.backward if ctx.native else backward
        x, weight = ctx.saved_tensors
        gradients = run(x, weight, ctx.spacing, grad_real.contiguous(), grad_imaginary.contiguous())
        return (*gradients, None, None, None)
