"""Small networks trained side by side: every parameter has a leading axis of M models.

One batched product then serves all models, which on a CPU costs little more than one of them. All parameters of an
ensemble live in one matrix [M, n], so that clipping, weight decay and the optimizer are a few row operations.
"""

import math
from collections.abc import Mapping, Sequence

import torch

from alewm.shapes import Float, Tensor


class ParameterTable:
    """Names and shapes of the parameters of one model, and where they lie in its row."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = dict(shapes)
        self.sizes = [math.prod(shape) for shape in self.shapes.values()]

    def unpack(self, rows: Float[Tensor, "M n"]) -> dict[str, Tensor]:
        """The named parameters, each [M, *shape], as views of the rows."""
        pieces = torch.split(rows, self.sizes, dim=1)
        return {
            name: piece.reshape(-1, *shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }

    def pack(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, " n"]:
        """The row of one model."""
        return torch.cat([parameters[name].flatten() for name in self.shapes])


def linear_shapes(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    """The two parameters of a linear layer; the weight is stored [inputs, outputs] for a plain product."""
    return {f"{name}.weight": (inputs, outputs), f"{name}.bias": (outputs,)}


def initial_linear(shapes: Mapping[str, tuple[int, ...]], generator: torch.Generator) -> dict[str, Tensor]:
    """Uniform within 1 / sqrt(inputs), as torch initialises its linear layers; one model."""
    parameters = {}
    for name, shape in shapes.items():
        layer = name.removesuffix(".weight").removesuffix(".bias")
        bound = 1 / math.sqrt(shapes[f"{layer}.weight"][0])
        parameters[name] = (2 * torch.rand(shape, generator=generator) - 1) * bound
    return parameters


def linear(x: Float[Tensor, "M N I"], parameters: Mapping[str, Tensor], name: str) -> Float[Tensor, "M N O"]:
    """One linear layer of every model on its own inputs."""
    return torch.baddbmm(parameters[f"{name}.bias"].unsqueeze(1), x, parameters[f"{name}.weight"])


class BatchNorm:
    """Batch normalisation without affine parameters of its own (they are given), for every model separately."""

    def __init__(self, num_models: int, width: int, device: torch.device, momentum: float = 0.1) -> None:
        self.running_mean = torch.zeros(num_models, 1, width, device=device)
        self.running_var = torch.ones(num_models, 1, width, device=device)
        self.momentum = momentum
        self.epsilon = 1e-5

    def __call__(
        self, x: Float[Tensor, "M N W"], scale: Float[Tensor, "M W"], shift: Float[Tensor, "M W"], *, training: bool
    ) -> Float[Tensor, "M N W"]:
        """`x` normalised by its batch while training, by the running moments otherwise."""
        if training:
            # Two plain means: torch.var_mean over an outer axis is fifty times slower on a CPU.
            mean = x.mean(1, keepdim=True)
            var = (x - mean).square().mean(1, keepdim=True)
            with torch.no_grad():
                unbiased = var * (x.shape[1] / (x.shape[1] - 1))
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(unbiased, self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        factor = scale.unsqueeze(1) * torch.rsqrt(var + self.epsilon)
        return torch.addcmul(shift.unsqueeze(1) - mean * factor, x, factor)


class RowAdamW:
    """AdamW on rows, with a learning rate per row; torch's has one per parameter group.

    Tested to equal `torch.optim.AdamW` on every row.
    """

    def __init__(
        self,
        rows: Float[Tensor, "M n"],
        weight_decay: Float[Tensor, "M"],
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self.rows, self.weight_decay = rows, weight_decay.unsqueeze(1)
        self.betas, self.epsilon = betas, epsilon
        self.first, self.second = torch.zeros_like(rows), torch.zeros_like(rows)
        self.num_steps = 0

    @torch.no_grad()
    def step(self, gradient: Float[Tensor, "M n"], learning_rate: Float[Tensor, "M"]) -> None:
        """One update of every row."""
        self.num_steps += 1
        rate = learning_rate.unsqueeze(1)
        self.first.lerp_(gradient, 1 - self.betas[0])
        self.second.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
        corrected = (self.second / (1 - self.betas[1] ** self.num_steps)).sqrt_().add_(self.epsilon)
        self.rows.mul_(1 - rate * self.weight_decay)
        self.rows.sub_(rate / (1 - self.betas[0] ** self.num_steps) * self.first / corrected)


def clip_rows(gradients: Sequence[Float[Tensor, "M _"]], max_norm: Float[Tensor, "M"]) -> Float[Tensor, "M"]:
    """Scales each model's gradient, in place, to at most `max_norm`; returns the norms before."""
    norm = torch.stack([gradient.square().sum(1) for gradient in gradients]).sum(0).sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1).unsqueeze(1)
    for gradient in gradients:
        gradient.mul_(factor)
    return norm
