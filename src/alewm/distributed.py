"""What several processes must agree on: one differentiable mean, and how many they are.

The convention is that of data-parallel training: every rank computes the same loss from its own samples and the
gradients of the parameters are averaged over ranks. With a statistic averaged by `mean_across_ranks` (and a batch of
equal size on each rank), loss and averaged gradient equal those of one process that holds all samples.
"""

from typing import Any

import torch
import torch.distributed as dist

from alewm.shapes import Float, Tensor


def num_ranks() -> int:
    """How many processes share the batch; one where torch.distributed was not started."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class _MeanAcrossRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        mean = local.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(mean)
        return mean / num_ranks()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        # The adjoint of a mean is a mean: each rank's samples influenced every rank's loss.
        mean = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(mean)
        return mean / num_ranks()


def mean_across_ranks(local: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The mean of `local` over all ranks, differentiable; `local` itself in a single process."""
    if num_ranks() == 1:
        return local
    result: Tensor = _MeanAcrossRanks.apply(local)  # type: ignore[no-untyped-call]
    return result
