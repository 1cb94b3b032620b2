"""BatchNorm moments measured at the weights as they are, in place of a trailing average over weights that were."""

from collections.abc import Iterable

import torch

from alewm.model.projector import BatchNorm
from alewm.model.world_model import WorldModel
from alewm.training.noise import RandomStreams
from alewm.training.objective import Objective
from alewm.training.source import WindowBatch


@torch.no_grad()
def recalibrate(
    model: WorldModel,
    objective: Objective,
    windows: Iterable[WindowBatch],
    streams: RandomStreams,
    device: torch.device,
    *,
    dtype: torch.dtype | None = None,
) -> None:
    """Set the running moments of every BatchNorm to their means over the batches of `windows`; no batch, no change.

    Running moments trail the weights by about ten updates. While the learning rate is high that is far enough to spoil
    predictions that are good with the moments of a batch. Capacities are sampled as in training, so that the moments
    are those of the same mixture; nothing is dropped, as nothing is when a model is used.
    """
    norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
    usual, was_training = [norm.momentum for norm in norms], model.training
    model.train()
    try:
        for number, batch in enumerate(windows, start=1):
            for norm in norms:
                norm.momentum = 1 / number  # the mean of all batches so far; the first replaces what was there
            pixels, actions = batch.to(device)
            noise = streams.draw_step(model, len(pixels), actions.shape[1], drops=False)
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                objective(model, pixels, actions, noise, streams.directions)
    finally:
        for norm, momentum in zip(norms, usual, strict=True):
            norm.momentum = momentum
        model.train(was_training)
