"""Prefix masks m(k), and the straight-through Gumbel choice of a capacity that selects one of them.

Coordinate j is kept by capacity k when j ≤ k. The choice follows the paper's appendix on straight-through prefix
sampling.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F

from alewm.capacity.support import CapacitySupport
from alewm.shapes import Float, Int, Tensor


def prefix_masks(
    support: CapacitySupport, *, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "C D"]:
    """The matrix **M** whose row c is m(k_c). Cached and shared: do not modify."""
    return _cached_masks(support.capacities, torch.device(device or "cpu"), dtype)


@lru_cache(maxsize=64)
def _cached_masks(capacities: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    # Cached: copying the capacities to a GPU at every call would synchronise with the host.
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


TEMPERATURE = 0.5
"""η, constant throughout the paper."""


def gumbel_noise(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """g = -log(-log U), with U clamped away from 0 and 1 so that g is finite in `dtype`."""
    uniform = torch.rand(shape, generator=generator, device=generator.device, dtype=dtype)
    limits = torch.finfo(dtype)
    return -(-uniform.clamp(limits.tiny, 1 - limits.eps).log()).log()


def straight_through_choice(
    logits: Float[Tensor, "*batch C"], noise: Float[Tensor, "*batch C"], temperature: float = TEMPERATURE
) -> Float[Tensor, "*batch C"]:
    """χ: exactly one-hot forward, with the gradient of softmax((log q + g) / η).

    `logits` need not be normalised: the log-softmax that turns them into log q is taken here. Written as
    hard + (soft - stopgrad(soft)), whose second term is exactly zero in floating point; the paper's order of the same
    sum leaves rounding errors in the mask.
    """
    perturbed = logits.log_softmax(-1) + noise
    soft = (perturbed / temperature).softmax(-1)
    hard = F.one_hot(perturbed.argmax(-1), logits.shape[-1]).to(soft.dtype)
    return hard + (soft - soft.detach())
