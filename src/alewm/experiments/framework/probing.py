"""Regressions fitted separately for every prefix: ridge in closed form, and a small network."""

from collections.abc import Callable

import torch
from torch import nn

from alewm.shapes import Float, Tensor

Predict = Callable[[Tensor], Tensor]
"""From inputs [n, I] to predictions [n, R]."""


def fit_ridge(x: Float[Tensor, "n I"], y: Float[Tensor, "n R"], ridge: float = 1e-3) -> Predict:
    """The linear map with an intercept that fits standardised `x` to `y`, in float64; `ridge` is per sample."""
    x_mean, x_std = x.double().mean(0), x.double().std(0, correction=0).clamp(min=1e-6)
    y_mean = y.double().mean(0)
    white = (x.double() - x_mean) / x_std
    gram = white.T @ white / len(x) + ridge * torch.eye(x.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(gram, white.T @ (y.double() - y_mean) / len(x))
    return lambda other: (((other.double() - x_mean) / x_std) @ weights + y_mean).to(y.dtype)


def fit_mlp(
    x: Float[Tensor, "n I"],
    y: Float[Tensor, "n R"],
    generator: torch.Generator,
    *,
    hidden_dim: int = 256,
    num_steps: int = 2000,
    batch_size: int = 256,
) -> Predict:
    """A network of two hidden layers, fitted by Adam with a cosine schedule to standardised pairs.

    Everything random comes from `generator`.
    """
    x_mean, x_std = x.mean(0), x.std(0, correction=0).clamp(min=1e-6)
    y_mean, y_std = y.mean(0), y.std(0, correction=0).clamp(min=1e-6)
    white_x, white_y = (x - x_mean) / x_std, (y - y_mean) / y_std
    network = nn.Sequential(
        nn.Linear(x.shape[1], hidden_dim),
        nn.GELU(),
        nn.Linear(hidden_dim, hidden_dim),
        nn.GELU(),
        nn.Linear(hidden_dim, y.shape[1]),
    )
    with torch.no_grad():
        for layer in network:
            if isinstance(layer, nn.Linear):
                layer.weight.normal_(std=layer.in_features**-0.5, generator=generator)
                layer.bias.zero_()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    for _ in range(num_steps):
        rows = torch.randint(len(x), (min(batch_size, len(x)),), generator=generator)
        loss = (network(white_x[rows]) - white_y[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    @torch.no_grad()
    def predict(other: Tensor) -> Tensor:
        fitted: Tensor = network((other - x_mean) / x_std) * y_std + y_mean
        return fitted

    return predict


def recovered(predicted: Float[Tensor, "n R"], y: Float[Tensor, "n R"]) -> Float[Tensor, "R"]:
    """R² of each column; 1 is exact, 0 is no better than the mean."""
    return 1 - (predicted - y).square().sum(0) / (y - y.mean(0)).square().sum(0)
