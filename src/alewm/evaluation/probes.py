"""Probes: how much of the true state each prefix of a latent holds, by ridge regression and small networks."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from alewm.envs.task import readings
from alewm.errors import InputError
from alewm.evaluation.held_out import SAMPLE_SEED, Trained, write_measurement
from alewm.shapes import Bool, Float, Tensor
from alewm.training.checkpoint import latest_checkpoint, read_description

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


def probe_run(
    run: Path, capacities: Sequence[int], amounts: Mapping[str, int], *, data_path: Path | None, device: torch.device
) -> tuple[Path, dict[str, Any]]:
    """R² of one run's prefixes, as `measure` finds it, and the file it is kept in.

    Without `capacities` prefixes are those the model supports; the data file is the run's own, at `data_path` if it
    has moved.
    """
    model = read_description(latest_checkpoint(run)).config.model
    ks = tuple(capacities) or model.capacities
    if list(ks) != sorted(set(ks)) or ks[0] < 1 or ks[-1] > model.latent_dim:
        raise InputError(
            f"Capacities must increase from at least 1 to at most {model.latent_dim}, the width of {run}'s latent; got "
            f"{', '.join(map(str, ks))}."
        )
    options = {"capacities": ks, **amounts}
    measured = measure(run, data_path, device, options)
    return write_measurement(run, "probes", options, measured), measured


def probe_table(measured: Mapping[str, Any]) -> str:
    """R² of every part of the state by prefix, and their mean, for a terminal."""
    names = measured["factors"]
    wide = max(len(name) for name in ("R² by k", *names)) + 2
    lines = []
    for probe in PROBES:
        by_k = measured[probe]
        lines.append(f"{probe + ' R²':<{wide}}" + "".join(f"{'k = ' + k:>9}" for k in by_k))
        for name in names:
            lines.append(f"{name:<{wide}}" + "".join(f"{each['factors'][name]:>9.3f}" for each in by_k.values()))
        lines.append(f"{'mean':<{wide}}" + "".join(f"{each['mean']:>9.3f}" for each in by_k.values()))
    return "\n".join(lines)


def measure(run: Path, data_path: Path | None, device: torch.device, options: Mapping[str, Any]) -> dict[str, Any]:
    """R² from every prefix of all that frames show of the state, by both probes; what never varies is left out."""
    with Trained.open(run, data_path, device) as trained:
        sides = []
        for part, most in (("train", options["num_train"]), ("test", options["num_test"])):
            rows = trained.rows(part, most)
            sides.append((trained.encode_rows(rows)[1], _visible_state(trained, rows)))
    (x, state), (test_x, test_state) = sides
    names = [name for name in state if min(state[name].std(), test_state[name].std()) > 1e-9]
    if not names:
        raise InputError(
            f"{trained.store.path}: {', '.join(state)} never vary in the frames looked at, so there is nothing to read."
        )
    y, test_y = (
        torch.tensor(np.stack([each[name] for name in names], 1), dtype=torch.float32) for each in (state, test_state)
    )
    ks = options["capacities"]
    generator = torch.Generator().manual_seed(SAMPLE_SEED)
    seen = torch.arange(x.shape[1]) < torch.tensor(ks)[:, None]
    networks = fit_networks(x, y, seen, generator, device=device, num_steps=options["num_steps"])
    predicted = {
        "linear": [fit_ridge(x[:, :k], y)(test_x[:, :k]) for k in ks],
        "network": list(networks(test_x)),
    }
    found: dict[str, Any] = {"factors": names}
    for probe in PROBES:
        scores = [recovered(each, test_y).tolist() for each in predicted[probe]]
        found[probe] = {
            str(k): {"mean": fmean(each), "factors": dict(zip(names, each, strict=True))}
            for k, each in zip(ks, scores, strict=True)
        }
    return found


def _visible_state(trained: Trained, rows: np.ndarray) -> dict[str, np.ndarray]:
    visible = trained.task.visible
    if not visible:
        raise InputError(f"The task {trained.task.name!r} does not say what a frame shows of its state (Task.visible).")
    columns = {name: np.asarray(trained.store.column(name)[rows]) for name in {each.column for each in visible}}
    for name, values in columns.items():
        wrong = ~np.isfinite(values.reshape(len(rows), -1)).all(axis=1)
        if wrong.any():
            first = int(wrong.argmax())
            raise InputError(
                f"{trained.store.path}, column {name!r}, row {rows[first]}: {values[first].tolist()} is no state that "
                f"could be read from a frame. Only files with finite states can be probed."
            )
    return readings(visible, columns)
