"""The operations of a predictor's block between its matrix products, as Triton kernels for inference.

Each reads its rows once and writes once; the arithmetic is float32 whatever the tensors are.
"""

import torch
import triton

from alewm.kernels import planning_kernels as kernels
from alewm.shapes import Float, Tensor

_ROWS = 8


def residual_norm(
    x: Float[Tensor, "rows W"],
    weight: Float[Tensor, "W"],
    bias: Float[Tensor, "W"],
    dtype: torch.dtype,
    *,
    modulation: tuple[Float[Tensor, "N T W"], Float[Tensor, "N T W"]] | None = None,
    branch: tuple[Float[Tensor, "N T W"], Float[Tensor, "rows W"]] | None = None,
) -> Float[Tensor, "rows W"]:
    """LN(x) with `weight` and `bias`, of x modulated by (shift, scale) after a plain LN where given.

    The rows of x are N samples of T positions each. With `branch` = (gate, y), x itself is first replaced by
    x + gate · y. Shift, scale and gate are slices of one tensor and share its strides.
    """
    num_rows, W = x.shape
    out = torch.empty(num_rows, W, dtype=dtype, device=x.device)
    gate, y = branch or (None, x)
    shift, scale = modulation or (None, None)
    of_action = shift if shift is not None else gate
    assert of_action is not None
    kernels.residual_norm[(triton.cdiv(num_rows, _ROWS),)](
        x, y, x if gate is None else gate, x if shift is None else shift, x if scale is None else scale, weight, bias,
        out, num_rows, W, of_action.shape[1], of_action.stride(0), of_action.stride(1), GATED=gate is not None,
        MODULATED=shift is not None, ROWS=_ROWS, COLUMNS=triton.next_power_of_2(W), num_warps=4,
    )  # fmt: skip
    return out


def short_attention(
    known: list[Float[Tensor, "N qkv"]], num_heads: int, *, num_asked: int
) -> Float[Tensor, "rows inner"]:
    """What the last one, or each, of at most three positions reads from itself and those before it.

    A position is its query, key and value side by side; all have the same row stride. Rows are N samples of `num_asked`
    positions.
    """
    N, inner = len(known[0]), known[0].shape[1] // 3
    if len(known) == 1:
        return known[0][:, 2 * inner :]
    if num_asked not in (1, len(known)) or len(known) > 3:
        raise ValueError(f"one or all of two or three positions may ask, not {num_asked} of {len(known)}")
    out = torch.empty(N * num_asked, inner, dtype=known[0].dtype, device=known[0].device)
    kernels.short_attention[(N,)](
        known[0], known[1], known[-1], out, known[0].stride(0), (inner // num_heads) ** -0.5,
        KNOWN=len(known), ASKED=num_asked, HEADS=num_heads, HEAD=inner // num_heads, num_warps=4,
    )  # fmt: skip
    return out
