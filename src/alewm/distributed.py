"""Data-parallel training: world size, ranks, slices of a batch, and a differentiable all-reduce mean.

Every rank computes the same loss from its own samples, and the gradients of the parameters are averaged over ranks.
With a statistic averaged by `mean_across_ranks` (and a batch of equal size on each rank), loss and averaged gradient
equal those of one process that holds all samples.
"""

import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from alewm.errors import InputError
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


def this_rank() -> int:
    """The index of this process among those that share the batch."""
    return dist.get_rank() if num_ranks() > 1 else 0


def launched_rank() -> int:
    """The index `torchrun` gave this process; 0 where it started none. Known before joining the others and after."""
    return int(os.environ.get("RANK", "0"))


def start_ranks(device: torch.device) -> torch.device:
    """The device of this process, after joining the others if `torchrun` started it."""
    if "RANK" not in os.environ or (dist.is_available() and dist.is_initialized()):
        return device
    if device.type == "cuda":
        device = torch.device(device.type, int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    # Its functions have as a default the group there is when they are defined. Imported later, as by torch's compiler,
    # they would keep this one and its threads for ever, and a thread that frees a tensor after Python's end aborts.
    importlib.import_module("torch.distributed.nn.functional")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def leave_ranks() -> None:
    """Leave the process group, where there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def first_rank_first() -> Iterator[None]:
    """Run the block on rank 0 first, then on the others: errors are reported once, and files exist."""
    if this_rank() != 0:
        wait_for_all_ranks()
    yield
    if this_rank() == 0:
        wait_for_all_ranks()


def share_of_batch(batch_size: int) -> int:
    """How many of `batch_size` windows each rank holds; all hold equally many, or the statistics are not exact."""
    if batch_size % num_ranks():
        raise InputError(
            f"A batch of {batch_size} windows does not divide evenly over {num_ranks()} processes; "
            f"choose a batch size that is a multiple of {num_ranks()}."
        )
    return batch_size // num_ranks()


def own_rows(whole: Tensor) -> Tensor:
    """The rows of a tensor drawn for the whole batch that belong to this rank."""
    share = share_of_batch(len(whole))
    return whole[this_rank() * share : (this_rank() + 1) * share]


def average_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replace every gradient by its mean over ranks, in one message."""
    if num_ranks() == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= num_ranks()
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):  # type: ignore[no-untyped-call]
        gradient.copy_(mean.view_as(gradient))


def wait_for_all_ranks() -> None:
    """Barrier: wait for all ranks."""
    if num_ranks() > 1:
        dist.barrier()
