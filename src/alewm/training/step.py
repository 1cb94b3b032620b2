"""One update: optimizer, learning rate, loss, gradient and step.

A non-finite update is not applied. Under `repeatable` updates repeat bit by bit.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from alewm.distributed import average_gradients, mean_across_ranks
from alewm.model.world_model import WorldModel
from alewm.shapes import Bool, Float, Tensor
from alewm.training.config import OptimConfig, TrainingConfig
from alewm.training.objective import Losses, Objective
from alewm.training.random_streams import RandomStreams, StepNoise


def build_optimizer(model: WorldModel, config: OptimConfig, *, on_device: bool = False) -> torch.optim.AdamW:
    """AdamW over the world model and, with its own learning rate, the selector.

    The fused optimizer can skip a non-finite update on the device, without synchronising with the host. With
    `on_device`, learning rates are tensors on the device, as a CUDA graph needs them.
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


@contextmanager
def repeatable(asked: bool) -> Iterator[None]:
    """Use deterministic algorithms inside the block if `asked`.

    Our own kernels are always deterministic; PyTorch's are chosen accordingly.
    """
    if not asked:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # PyTorch would fill new memory for debugging, at the cost of a kernel launch per tensor.
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        memory.fill_uninitialized_memory = filled


class StepResult(NamedTuple):
    """Results of one update, still on the device."""

    losses: Losses
    total: Float[Tensor, ""]
    """The loss of the whole batch."""
    gradient_norm: Float[Tensor, ""]
    """Norm of the gradient of all parameters together, before clipping."""
    is_finite: Bool[Tensor, ""]
    """Whether loss and gradient were finite, so that the update was applied."""


def update(
    model: WorldModel,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    pixels: Tensor,
    actions: Tensor,
    noise: StepNoise,
    directions: torch.Generator,
    *,
    clip_norm: float,
    autocast_dtype: torch.dtype | None = None,
) -> StepResult:
    """Change the weights by one step of `optimizer`, unless loss or gradient is not finite."""
    optimizer.zero_grad(set_to_none=True)
    device_type = directions.device.type
    with torch.autocast(device_type, dtype=autocast_dtype, enabled=autocast_dtype is not None):
        losses: Losses = objective(model, pixels, actions, noise, directions)
    losses.total.backward()  # type: ignore[no-untyped-call]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    average_gradients(parameters)
    gradients = [parameter for parameter in parameters if parameter.grad is not None]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in gradients if parameter.grad is not None])
    nn.utils.clip_grads_with_norm_(gradients, clip_norm, norm)
    total = mean_across_ranks(losses.total.detach())
    is_finite = norm.isfinite() & total.isfinite()
    # The fused optimizer reads this flag on the device and leaves weights and moments alone where it is set.
    fused: Any = optimizer
    fused.found_inf = (~is_finite).float()
    optimizer.step()
    # Detached, so that this update's autograd graph is freed before the next.
    return StepResult(losses._replace(total=losses.total.detach()), total, norm, is_finite)


class PlainUpdates:
    """Updates of one run, each issued operation by operation."""

    def __init__(
        self,
        model: WorldModel,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        streams: RandomStreams,
        training: TrainingConfig,
    ) -> None:
        self.model, self.objective, self.optimizer, self.streams = model, objective, optimizer, streams
        self.clip_norm = training.optim.clip_norm
        self.autocast_dtype = training.autocast_dtype(streams.directions.device)

    def __call__(self, pixels: Tensor, actions: Tensor) -> StepResult:
        """Draw the update's noise and change the weights by one step."""
        noise = self.streams.draw_step(self.model, len(pixels), actions.shape[1], drops=True)
        return update(
            self.model,
            self.objective,
            self.optimizer,
            pixels,
            actions,
            noise,
            self.streams.directions,
            clip_norm=self.clip_norm,
            autocast_dtype=self.autocast_dtype,
        )
