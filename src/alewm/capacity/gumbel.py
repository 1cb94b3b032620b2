"""The straight-through Gumbel choice of a capacity (the paper's appendix on straight-through prefix sampling)."""

import torch
import torch.nn.functional as F

from alewm.shapes import Float, Tensor

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
