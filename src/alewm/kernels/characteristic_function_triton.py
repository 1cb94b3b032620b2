"""The characteristic function on a GPU, in two Triton kernels.

A tile of projections is read once; cosines and sines at all knots follow by angle addition in registers. The forward
pass writes one partial sum per tile of rows, the backward pass overwrites the projections by their gradient. Memory
beyond the inputs is therefore one buffer of projections, [G, N·C, P], and the partial sums.
"""

from typing import Any

import torch
import triton

from alewm.capacity.support import CapacitySupport, prefix_masks
from alewm.devices import full_precision
from alewm.kernels import characteristic_function_kernels as kernels
from alewm.regularizers.quadrature import Quadrature
from alewm.shapes import Float, Tensor

_ROWS, _COLUMNS = 64, 64
_WARPS = 8


def prefix_mixture_cf(
    s: Float[Tensor, "*batch N D"],
    weight: Float[Tensor, "*#batch N C"],
    u: Float[Tensor, "*#batch D P"],
    support: CapacitySupport,
    quadrature: Quadrature,
) -> tuple[Float[Tensor, "*batch Q P"], Float[Tensor, "*batch Q P"]]:
    """Real and imaginary part of Σ_n Σ_k w(n, k) exp(iτ uᵀ M_k s_n)."""
    batch, (N, D), P = s.shape[:-2], s.shape[-2:], u.shape[-1]
    samples = s.reshape(-1, N, D)
    weights = weight.expand(*batch, *weight.shape[-2:]).reshape(len(samples), -1)
    shared = u.numel() == D * P
    directions = u.reshape(1, D, P) if shared else u.expand(*batch, D, P).reshape(-1, D, P)
    parts = _PrefixMixture.apply(samples, weights, directions, support, quadrature)  # type: ignore[no-untyped-call]
    real, imaginary = parts.view(*batch, 2, quadrature.num_knots, P).unbind(-3)
    return real, imaginary


class _PrefixMixture(torch.autograd.Function):
    """[G, 2, Q, P] from latents [G, N, D], weights [G, N·C] and directions [1 or G, D, P]."""

    @staticmethod
    def forward(
        ctx: Any, s: Tensor, weight: Tensor, u: Tensor, support: CapacitySupport, quadrature: Quadrature
    ) -> Tensor:
        """The sums, real parts before imaginary ones."""
        weight = weight.contiguous()
        x = _projections(s, u, support)
        ctx.save_for_backward(s, weight, u)
        ctx.support, ctx.quadrature, ctx.x = support, quadrature, x
        G, R, P = x.shape
        num_parts, Q = triton.cdiv(R, _ROWS), quadrature.num_knots
        out = x.new_empty(G, num_parts, 2, Q, P)
        kernels.partial_sums[(G, num_parts, triton.cdiv(P, _COLUMNS))](
            x, weight, out, R, P, num_parts, quadrature.spacing, Q=Q, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=_WARPS
        )
        return out.sum(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Gradients to the latents and to the weights."""
        s, weight, u = ctx.saved_tensors
        with full_precision(s.device):
            # The gradient overwrites the projections; a second backward pass recomputes them.
            x, ctx.x = (ctx.x if ctx.x is not None else _projections(s, u, ctx.support)), None
            G, R, P = x.shape
            num_tiles = triton.cdiv(P, _COLUMNS)
            grad_weight = x.new_empty(G, num_tiles, R)
            kernels.gradients[(G, triton.cdiv(R, _ROWS), num_tiles)](
                x, weight, grad.contiguous(), grad_weight, R, P, num_tiles, ctx.quadrature.spacing,
                Q=ctx.quadrature.num_knots, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=_WARPS,
            )  # fmt: skip
            masks = prefix_masks(ctx.support, device=s.device, dtype=s.dtype)
            grad_masked = _times(x, u.mT).view(*s.shape[:2], len(ctx.support), s.shape[-1])
            return (grad_masked * masks).sum(-2), grad_weight.sum(1), None, None, None


def _projections(s: Tensor, u: Tensor, support: CapacitySupport) -> Float[Tensor, "G R P"]:
    masked = s.unsqueeze(-2) * prefix_masks(support, device=s.device, dtype=s.dtype)
    return _times(masked.flatten(1, 2), u)


def _times(rows: Tensor, matrix: Tensor) -> Tensor:
    """Batched product; where all share one matrix, a single large one."""
    if len(matrix) == 1:
        return (rows.flatten(0, 1) @ matrix[0]).view(*rows.shape[:2], -1)
    return rows @ matrix
