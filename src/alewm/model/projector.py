"""The map from a transformer's width to the latent, with a BatchNorm whose batch spans all ranks."""

import torch
import torch.nn.functional as F
from torch import nn

from alewm.devices import at_least_float32
from alewm.distributed import mean_across_ranks, num_ranks
from alewm.shapes import Float, Tensor


class BatchNorm(nn.Module):
    """`nn.BatchNorm1d` with moments averaged over ranks inside autograd.

    The library's own synchronised layer refuses CPUs. In one process this one computes what `nn.BatchNorm1d` does, and
    its parameters and buffers have the same names. Moments are float32 whatever the input is.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, width: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Float[Tensor, "N W"]) -> Float[Tensor, "N W"]:
        """x normalised by the batch's moments while training, by the running ones otherwise."""
        if self.training:
            self.num_batches_tracked.add_(1)
            if num_ranks() > 1:
                return self._normalise_across_ranks(x)
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.momentum, self.eps
        )

    def _normalise_across_ranks(self, x: Tensor) -> Tensor:
        wide = at_least_float32(x)
        mean = mean_across_ranks(wide.mean(0))
        centred = wide - mean
        var = mean_across_ranks(centred.square().mean(0))
        with torch.no_grad():
            n = len(x) * num_ranks()
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_((var * (n / (n - 1))).to(self.running_var.dtype), self.momentum)
        return (centred * torch.rsqrt(var + self.eps) * self.weight + self.bias).to(x.dtype)


class Projector(nn.Module):
    """Linear, BatchNorm, GELU, Linear, on the features of every frame of every window together."""

    def __init__(self, input_dim: int, hidden_dim: int, output_dim: int) -> None:
        super().__init__()
        self.widen = nn.Linear(input_dim, hidden_dim)
        self.norm = BatchNorm(hidden_dim)
        self.narrow = nn.Linear(hidden_dim, output_dim)

    def forward(self, x: Float[Tensor, "B F W"], num_outputs: int | None = None) -> Float[Tensor, "B F D"]:
        """The first `num_outputs` coordinates of the projection (all by default)."""
        hidden = F.gelu(self.norm(self.widen(x.flatten(0, 1))))
        latents = F.linear(hidden, self.narrow.weight[:num_outputs], self.narrow.bias[:num_outputs])
        return latents.view(*x.shape[:2], -1)
