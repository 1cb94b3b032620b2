"""What the regularizers accept: checked at every call, because the C path reads memory by these shapes.

Shapes, dtypes and devices are compared everywhere. Values are looked at only on a CPU: on a GPU that would make the
host wait for the device, and could not be recorded in a CUDA graph.
"""

import torch

from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError
from alewm.shapes import Tensor

TOLERANCE = 0.01
"""How far a probability may be below zero, and a row's sum from one: a softmax in bfloat16 is off by up to 2^-8."""


def check_sample_axis(s: Tensor, sample_axis: int) -> None:
    """Refuses latents without samples or coordinates, and an axis that cannot be that of their samples."""
    shape = tuple(s.shape)
    if s.ndim < 2 or not s.is_floating_point():
        raise InputError(
            f"Latents are floating-point numbers with one axis of samples or more and a last one of coordinates, got "
            f"{s.dtype} of shape {shape}."
        )
    if not isinstance(sample_axis, int) or not -s.ndim <= sample_axis < s.ndim:
        raise InputError(f"sample_axis {sample_axis!r} is no axis of latents of shape {shape}; name one by an integer.")
    if sample_axis % s.ndim == s.ndim - 1:
        raise InputError(f"sample_axis {sample_axis} is the feature axis of latents of shape {shape}; name another.")


def check_rows(name: str, rows: Tensor, s: Tensor, sample_axis: int, support: CapacitySupport) -> None:
    """Refuses `rows` that are not [N, C] for the N samples on `sample_axis` of `s` and the C capacities."""
    check_sample_axis(s, sample_axis)
    support.of_width(s.shape[-1])
    expected = (s.shape[sample_axis], len(support))
    if tuple(rows.shape) == expected:
        return
    fitting = [axis for axis in range(s.ndim - 1) if tuple(rows.shape) == (s.shape[axis], len(support))]
    remedy = f"sample_axis={fitting[0]} would fit" if fitting else "give one row per sample and one column per capacity"
    raise InputError(
        f"{name} must have the shape {expected}, for the samples on axis {sample_axis} of latents of shape "
        f"{tuple(s.shape)} and the capacities {support.capacities}, got {tuple(rows.shape)}; {remedy}."
    )


def check_latents(s: Tensor) -> None:
    """Refuses anything but floating-point latents [*batch, N, D] with a sample and a coordinate."""
    if s.ndim < 2 or not s.is_floating_point() or min(s.shape) < 1:
        raise InputError(
            f"Latents are floating-point numbers [*batch, N, D] with no axis of size 0, got {s.dtype} of shape "
            f"{tuple(s.shape)}."
        )


def check_operands(s: Tensor, weight: Tensor, u: Tensor, support: CapacitySupport, name: str = "weight") -> None:
    """Refuses latents [*batch, N, D], weights called `name` [*#batch, N, C] or directions [*#batch, D, P] that do not
    fit each other; #batch may be 1 along any axis."""
    check_latents(s)
    width = support.of_width(s.shape[-1]).latent_dim
    num_projections = u.shape[-1] if u.ndim else 0
    if num_projections < 1:
        raise InputError(f"u must have the shape [*batch, {width}, P] with P of 1 or more, got {tuple(u.shape)}.")
    check_like(name, weight, s, (s.shape[-2], len(support)))
    check_like("u", u, s, (width, num_projections))


def check_like(name: str, value: Tensor, s: Tensor, last: tuple[int, ...]) -> None:
    """Refuses a `value` that is not [*#batch, *last] for latents [*batch, N, D], or not of their dtype and device."""
    batch = s.shape[:-2]
    lead = value.shape[: value.ndim - len(last)]
    fits = len(lead) == len(batch) and all(own in (1, size) for own, size in zip(lead, batch, strict=True))
    if not fits or value.shape[len(lead) :] != last:
        raise InputError(
            f"{name} must have the shape {(*batch, *last)} for latents of shape {tuple(s.shape)} (1 is allowed in "
            f"place of a leading size), got {tuple(value.shape)}."
        )
    if value.dtype != s.dtype or value.device != s.device:
        raise InputError(
            f"{name} must be {s.dtype} on {s.device}, as the latents are, got {value.dtype} on {value.device}."
        )


def check_distribution(name: str, q: Tensor, *, one_hot: bool = False) -> None:
    """Refuses rows that are negative somewhere or do not sum to one, or with `one_hot` are not all in one place.

    A NaN passes: the loss is then NaN too, and training stops there and names the step.
    """
    if q.device.type != "cpu" or torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None:
        return
    values = q.detach()
    least, (low, high) = values.min().item(), (sum_.item() for sum_ in values.sum(-1).aminmax())
    if least < -TOLERANCE or low < 1 - TOLERANCE or high > 1 + TOLERANCE:
        raise InputError(
            f"{name} must hold probabilities, rows that sum to one; the least entry is {least:.4g}, and sums are "
            f"{low:.4g} to {high:.4g}. Take a softmax of logits first."
        )
    if one_hot and (largest := values.amax(-1).min().item()) < 1 - TOLERANCE:
        raise InputError(
            f"{name} must choose one capacity per sample, rows with a single one; the largest entry of a row is "
            f"{largest:.4g}. Sample a capacity first."
        )
