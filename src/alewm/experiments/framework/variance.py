"""How much each coordinate varies under its mask, beside how often the prior would have it active."""

from typing import Any

import torch

from alewm.experiments.framework.trained import EncodedWindows, Trained
from alewm.shapes import Float, Tensor
from alewm.training.diagnostics import masked_variance


@torch.no_grad()
def capacity_probabilities(trained: Trained, windows: EncodedWindows) -> Float[Tensor, "B C"]:
    """q(k | w) of every window, on the CPU."""
    model, device = trained.model, trained.device
    parts = [model.capacity_logits(part.to(device)).cpu() for part in torch.split(windows.features, 512)]
    return torch.cat(parts).float().softmax(-1)


def variance_beside_survival(trained: Trained, windows: EncodedWindows, q: Float[Tensor, "B C"]) -> dict[str, Any]:
    """Per coordinate: variance masked and unmasked, and the survival probabilities of prior and selector."""
    prefixes, prior = trained.model.config.prefixes, trained.model.log_prior.exp().cpu()
    active = prefixes.probabilities(q)
    return {
        "masked_variance": masked_variance(windows.latents, active, prefixes.lengths).tolist(),
        "raw_variance": windows.latents.flatten(0, 1).var(0, correction=0).tolist(),
        "prior_survival": prefixes.survival(prior).tolist(),
        "q_survival": prefixes.survival(q.mean(0)).tolist(),
    }
