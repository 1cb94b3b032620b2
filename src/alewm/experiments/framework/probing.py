"""Regressions fitted separately for every prefix: ridge in closed form, and small networks."""

from collections.abc import Callable

import torch
from torch.nn import functional

from alewm.shapes import Bool, Float, Tensor

PROBES = ("linear", "network")
"""What is fitted, as tables and files call it: by `fit_ridge` and by `fit_networks`."""

Predict = Callable[[Tensor], Tensor]
"""From inputs [n, I] to predictions, [n, R] or one such table per network."""


def fit_ridge(x: Float[Tensor, "n I"], y: Float[Tensor, "n R"], ridge: float = 1e-3) -> Predict:
    """The linear map with an intercept that fits standardised `x` to `y`, in float64; `ridge` is per sample."""
    x_mean, x_std = x.double().mean(0), x.double().std(0, correction=0).clamp(min=1e-6)
    y_mean = y.double().mean(0)
    white = (x.double() - x_mean) / x_std
    gram = white.T @ white / len(x) + ridge * torch.eye(x.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(gram, white.T @ (y.double() - y_mean) / len(x))
    return lambda other: (((other.double() - x_mean) / x_std) @ weights + y_mean).to(y.dtype)


def fit_networks(
    x: Float[Tensor, "n I"],
    y: Float[Tensor, "n R"],
    seen: Bool[Tensor, "networks I"],
    generator: torch.Generator,
    *,
    device: torch.device,
    hidden_dim: int = 256,
    num_steps: int = 2000,
    batch_size: int = 256,
) -> Predict:
    """Networks of two hidden layers, each of which sees the columns of `x` that its row of `seen` names.

    Fitted by Adam with a cosine schedule to standardised pairs, all at once on `device`: one after the other they would
    mostly wait for launches. Everything random comes from `generator`, which is on the CPU, where predictions,
    [networks, n, R], are too.
    """
    x_mean, x_std = x.mean(0), x.std(0, correction=0).clamp(min=1e-6)
    y_mean, y_std = y.mean(0), y.std(0, correction=0).clamp(min=1e-6)
    white_x, white_y = ((x - x_mean) / x_std).to(device), ((y - y_mean) / y_std).to(device)
    shown = seen[:, None].to(device, x.dtype)
    layers = []
    for num_inputs, fan_in, num_outputs in (
        (x.shape[1], seen.sum(1), hidden_dim),
        (hidden_dim, torch.tensor(hidden_dim), hidden_dim),
        (hidden_dim, torch.tensor(hidden_dim), y.shape[1]),
    ):
        weight = torch.randn(len(seen), num_inputs, num_outputs, generator=generator) * fan_in.view(-1, 1, 1) ** -0.5
        bias = torch.zeros(len(seen), 1, num_outputs)
        layers.append((weight.to(device).requires_grad_(), bias.to(device).requires_grad_()))

    def network(rows: Float[Tensor, "m I"]) -> Float[Tensor, "networks m R"]:
        hidden = rows * shown
        for index, (weight, bias) in enumerate(layers):
            hidden = torch.baddbmm(bias, functional.gelu(hidden) if index else hidden, weight)
        return hidden

    optimizer = torch.optim.AdamW([part for layer in layers for part in layer], lr=1e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    for rows in torch.randint(len(x), (num_steps, min(batch_size, len(x))), generator=generator).to(device):
        # The sum over networks gives each the gradient of its own mean.
        loss = (network(white_x[rows]) - white_y[rows]).square().mean((1, 2)).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()

    @torch.no_grad()
    def predict(other: Tensor) -> Tensor:
        return network(((other - x_mean) / x_std).to(device)).cpu() * y_std + y_mean

    return predict


def recovered(predicted: Float[Tensor, "n R"], y: Float[Tensor, "n R"]) -> Float[Tensor, "R"]:
    """R² of each column; 1 is exact, 0 is no better than the mean."""
    return 1 - (predicted - y).square().sum(0) / (y - y.mean(0)).square().sum(0)
