"""Parameter groups, and the learning rate as a function of the step."""

import math

import torch

from alewm.model.world_model import WorldModel
from alewm.training.config import OptimConfig


def build_optimizer(model: WorldModel, config: OptimConfig, *, on_device: bool = False) -> torch.optim.AdamW:
    """AdamW over the world model and, with its own learning rate, the selector.

    The fused form, because it can refuse an update on the device, without waiting for the processor to look at it. With
    `on_device`, learning rates are tensors beside the weights, as a recorded update needs them.
    """
    selector = [] if model.selector is None else list(model.selector.parameters())
    chosen = {id(parameter) for parameter in selector}
    groups = [
        {"params": [p for p in model.parameters() if id(p) not in chosen], "multiplier": 1.0, "delay": 0.0},
        {"params": selector, "multiplier": config.selector_multiplier, "delay": config.selector_delay},
    ]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        fused=True,
        capturable=on_device,
    )
    if on_device:
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(config.learning_rate, device=group["params"][0].device)
    return optimizer


def learning_rate_factor(step: int, num_steps: int, warmup_fraction: float) -> float:
    """The share of the peak learning rate used by update `step` of 0 ... num_steps - 1."""
    warmup = math.ceil(warmup_fraction * num_steps)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, num_steps - warmup)))


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float, progress: float) -> None:
    """Give every group its multiple of `learning_rate`, or none before its delay; `progress` is a share of steps."""
    for group in optimizer.param_groups:
        has_started = progress >= group.get("delay", 0.0)  # older checkpoints have groups without one
        own = learning_rate * group["multiplier"] if has_started else 0.0
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own
