"""MixSIGReg forward and backward: the definition, the recurrence, and the C path where there is one."""

from collections.abc import Callable
from functools import partial

import torch

from alewm.benchmarks.timing import median_seconds, print_line
from alewm.capacity.prior import polynomial_prior
from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError
from alewm.regularizers.kernels.dispatch import PathName, choose
from alewm.regularizers.kernels.native import why_not
from alewm.regularizers.mix_sigreg import mix_sigreg
from alewm.regularizers.quadrature import EPPS_PULLEY
from alewm.regularizers.slices import random_directions

_EVERY_PREFIX_UP_TO = 16
_NUM_BLOCKS = 8
_PRIOR_DEGREE = -1.5


def bench_regularizer(*, batch: int, frames: int, latent_dim: int, projections: int, repeats: int, device: str) -> None:
    """Prints milliseconds of every path and its agreement with the definition in float64."""
    support = _support(latent_dim)
    generator = torch.Generator().manual_seed(0)
    s = torch.randn(frames, batch, latent_dim, generator=generator).to(device).requires_grad_()
    logits = torch.randn(batch, len(support), generator=generator).to(device).requires_grad_()
    u = random_directions(latent_dim, projections, generator=generator).to(device)
    prior = polynomial_prior(len(support), _PRIOR_DEGREE).to(device)

    def loss(path: PathName, dtype: torch.dtype) -> torch.Tensor:
        q = logits.to(dtype).softmax(-1)
        statistic = mix_sigreg(s.to(dtype), q[None], u.to(dtype)[None], prior.to(dtype)[None], support, path=path)
        return statistic.mean()

    exact = loss("reference", torch.float64)
    exact_gradient = torch.autograd.grad(exact, s)[0]
    obstacle = why_not(s, support, EPPS_PULLEY)
    paths: list[PathName] = ["reference", "recurrence"]
    if obstacle is None:
        paths.append("native")
    rows = {}
    for path in paths:
        value = loss(path, torch.float32)
        gradient = torch.autograd.grad(value, s)[0]
        rows[path] = {
            "milliseconds": 1e3 * median_seconds(partial(_forward_backward, loss, path, s, logits), repeats, s.device),
            "value_error": float(((value - exact) / exact).abs().detach()),
            "gradient_error": float((gradient - exact_gradient).abs().max() / exact_gradient.abs().max()),
        }
    chosen = choose(s, support, EPPS_PULLEY)
    print(f"MixSIGReg, B {batch}, F {frames}, D {latent_dim}, C {len(support)}, P {projections}, float32 on {device}")
    print(f"{'path':<12}{'ms':>9}{'ratio':>8}{'value error':>14}{'gradient error':>16}")
    for path, row in rows.items():
        ratio = rows["reference"]["milliseconds"] / row["milliseconds"]
        print(
            f"{path:<12}{row['milliseconds']:>9.2f}{ratio:>7.1f}x{row['value_error']:>14.1e}{row['gradient_error']:>16.1e}"
        )
    if obstacle is not None:
        print(f"native is not available: {obstacle}")
    print(f"chosen: {chosen.path} ({chosen.reason})")
    sizes = {"B": batch, "F": frames, "D": latent_dim, "C": len(support), "P": projections}
    print_line("regularizer", sizes=sizes, paths=rows, chosen=chosen.path)


def _support(latent_dim: int) -> CapacitySupport:
    if latent_dim <= _EVERY_PREFIX_UP_TO:
        return CapacitySupport.every(latent_dim)
    if latent_dim % _NUM_BLOCKS:
        raise InputError(
            f"--latent-dim above {_EVERY_PREFIX_UP_TO} must be divisible by {_NUM_BLOCKS}, got {latent_dim}."
        )
    return CapacitySupport(tuple(latent_dim * block // _NUM_BLOCKS for block in range(1, _NUM_BLOCKS + 1)))


def _forward_backward(
    loss: Callable[[PathName, torch.dtype], torch.Tensor], path: PathName, s: torch.Tensor, logits: torch.Tensor
) -> None:
    torch.autograd.grad(loss(path, torch.float32), (s, logits))
