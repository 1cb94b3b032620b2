"""Attention over many positions, by the fastest kernel the device has."""

import torch
import torch.nn.functional as F

from alewm.shapes import Float, Tensor


def attend(
    query: Float[Tensor, "N heads asked head"],
    key: Float[Tensor, "N heads known head"],
    value: Float[Tensor, "N heads known head"],
) -> Float[Tensor, "N heads asked head"]:
    """Every query's mixture of all values; nothing is masked.

    For 257 positions of width 64 in bfloat16, cuDNN's kernel takes about half the time of the one PyTorch chooses
    (`docs/performance.md`), so it is named where it applies. Its way back adds in no fixed order, which
    `torch.use_deterministic_algorithms` forbids.
    """
    if _suits_cudnn(query):
        # Log-sum-exp is only of use to a backward pass.
        mixed: Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention(
            query, key, value, None, compute_log_sumexp=torch.is_grad_enabled()
        )[0]
        return mixed
    return F.scaled_dot_product_attention(query, key, value)


def _suits_cudnn(query: Tensor) -> bool:
    return (
        query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16)
        and query.shape[-1] % 8 == 0
        and query.shape[2] > 1
        and not torch.are_deterministic_algorithms_enabled()
        and _has_cudnn_attention()
    )


def _has_cudnn_attention() -> bool:
    return torch.version.cuda is not None and torch.cuda.get_device_capability()[0] >= 9
