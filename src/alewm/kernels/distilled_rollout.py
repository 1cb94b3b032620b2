"""The rollout of distilled dynamics by one kernel: all H blocks of a tile of candidates, weights on the chip.

By PyTorch's operations five blocks are forty kernels, and a GPU takes longer to start each than to compute it.
"""

from typing import NamedTuple

import torch
import triton
from torch import nn

from alewm.kernels import planning_kernels as kernels
from alewm.shapes import Float, Tensor

# 16 candidates spread an episode's 300 over 19 processors; 4 warps, or 32 candidates, spill kilobytes of registers.
_ROWS, _WARPS = 16, 8
_CHUNK = 32
"""Hidden units whose weights are read at a time where not all fit."""
_LARGEST, _LARGEST_BLOCK = 256, 64
_MEMORY_OF_HOPPER = 227 * 1024


class PackedDynamics(NamedTuple):
    """A network's float32 weights, input by output, every side padded with zeros to a power of two."""

    capacity: int
    action_dim: int
    chunk: int
    """Hidden units whose weights are on the chip at a time."""
    mean: Float[Tensor, " K"]
    std: Float[Tensor, " K"]
    state: Float[Tensor, "K hidden"]
    action: Float[Tensor, "A hidden"]
    first_bias: Float[Tensor, " hidden"]
    hidden: Float[Tensor, "hidden hidden"]
    hidden_bias: Float[Tensor, " hidden"]
    output: Float[Tensor, "hidden K"]
    output_bias: Float[Tensor, " K"]


def why_no_fused_rollout(capacity: int, action_dim: int, hidden_dim: int, device: torch.device) -> str | None:
    """The reason one kernel cannot roll out such a network, or None."""
    if max(capacity, hidden_dim) > _LARGEST or action_dim > _LARGEST_BLOCK:
        return f"it holds at most {_LARGEST} coordinates and hidden units and action blocks of {_LARGEST_BLOCK} numbers"
    if not _units_at_once(capacity, action_dim, hidden_dim, device):
        return f"{capacity} coordinates and {hidden_dim} hidden units do not fit on the chip together"
    return None


def pack(
    mean: Float[Tensor, " k"], std: Float[Tensor, " k"], state: nn.Linear, action: nn.Linear, hidden: nn.Linear,
    output: nn.Linear,
) -> PackedDynamics:  # fmt: skip
    """A copy of a network that `why_no_fused_rollout` has nothing against."""
    capacity, action_dim, hidden_dim = len(mean), action.in_features, hidden.in_features
    K, A, padded_hidden = _side(capacity), _side(action_dim), _side(hidden_dim)
    return PackedDynamics(
        capacity,
        action_dim,
        _units_at_once(capacity, action_dim, hidden_dim, mean.device),
        _padded(mean, K),
        _padded(std, K, fill=1.0),  # coordinates that are not there are divided by it too
        _padded(state.weight.T, K, padded_hidden),
        _padded(action.weight.T, A, padded_hidden),
        _padded(action.bias, padded_hidden),
        _padded(hidden.weight.T, padded_hidden, padded_hidden),
        _padded(hidden.bias, padded_hidden),
        _padded(output.weight.T, padded_hidden, K),
        _padded(output.bias, K),
    )


def roll_out(
    packed: PackedDynamics, z_first: Float[Tensor, "N k"], actions: Float[Tensor, "N H A"]
) -> Float[Tensor, "H N k"]:
    """The H prefixes that follow `z_first` under H action blocks, as `DistilledDynamics.imagine` gives them."""
    N, H, _ = actions.shape
    latents = z_first.new_empty(H, N, packed.capacity)
    kernels.roll_out_distilled[(triton.cdiv(N, _ROWS),)](
        z_first.contiguous(), actions.contiguous(), latents, *packed[3:], N, H, packed.capacity, packed.action_dim,
        CAPACITY=len(packed.mean), ACTION=len(packed.action), HIDDEN=len(packed.hidden), CHUNK=packed.chunk, ROWS=_ROWS,
        num_warps=_WARPS, num_stages=1,
    )  # fmt: skip
    return latents


def _side(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())  # `tl.dot` multiplies matrices of at least 16 by 16


def _units_at_once(capacity: int, action_dim: int, hidden_dim: int, device: torch.device) -> int:
    """All hidden units if their weights fit on the chip, fewer if these and the output's fit in turn, or 0."""
    K, A, hidden = _side(capacity), _side(action_dim), _side(hidden_dim)
    first_two, activations, memory = K + A + hidden, _ROWS * (K + A + hidden), _memory_of(device)
    if 4 * (first_two * hidden + hidden * K + activations) <= memory:
        return hidden
    needed = 4 * (max(first_two * _CHUNK, hidden * K) + activations)
    return _CHUNK if needed <= memory and hidden > _CHUNK else 0


def _memory_of(device: torch.device) -> int:
    """Bytes on the chip that a program may use."""
    if device.type != "cuda":
        return _MEMORY_OF_HOPPER
    memory: int = triton.runtime.driver.active.utils.get_device_properties(device.index)["max_shared_mem"]
    return memory


def _padded(weights: Tensor, *sides: int, fill: float = 0.0) -> Tensor:
    padded = torch.full(sides, fill, dtype=torch.float32, device=weights.device)
    padded[tuple(map(slice, weights.shape))] = weights.detach()
    return padded
