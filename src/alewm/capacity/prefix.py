"""Prefix masks: coordinate j is kept by capacity k when j ≤ k."""

from functools import lru_cache

import torch

from alewm.capacity.support import CapacitySupport
from alewm.shapes import Float, Int, Tensor


def prefix_masks(
    support: CapacitySupport, *, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "C D"]:
    """The matrix **M** whose row c is m(k_c). Shared by all who ask for it: not to be written to."""
    return _remembered_masks(support.capacities, torch.device(device or "cpu"), dtype)


@lru_cache(maxsize=64)
def _remembered_masks(capacities: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    # Remembered, because copying the capacities to a GPU at every call would make it wait for the processor.
    with torch.inference_mode(False):
        ends = torch.tensor(capacities, device=device)
        coordinates = torch.arange(1, capacities[-1] + 1, device=device)
        return (coordinates <= ends[:, None]).to(dtype)


def mask_of_choice(
    choice: Float[Tensor, "*batch C"], masks: Float[Tensor, "*batch_or_none C D"]
) -> Float[Tensor, "*batch D"]:
    """m = **M**ᵀ χ for a (straight-through) one-hot choice χ; each choice may have masks of its own."""
    return choice @ masks if masks.ndim == 2 else (choice.unsqueeze(-2) @ masks).squeeze(-2)


def modal_index(logits: Float[Tensor, "*batch C"]) -> Int[Tensor, "*batch"]:
    """The index c of the most probable capacity; a tie goes to the smaller one."""
    return logits.argmax(-1)
