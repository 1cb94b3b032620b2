"""A random stream per episode: what an episode draws never depends on the episodes planned beside it.

A stream is named by its purpose and integers such as (seed, episode, plan index). The name is hashed to a seed, the
seed starts a generator of its own, and that generator draws everything the stream needs at once. Regrouping,
reordering or dropping episodes therefore leaves every other episode's numbers untouched.

Candidates are drawn on the device that plans: a second of a CPU core per 200 episodes would otherwise be spent on
numbers that a GPU makes in a millisecond. Generators of different kinds make different numbers (PyTorch's on a CPU and
on a GPU, and Triton's, which a GPU uses where it is installed), so a plan is repeatable on one kind of machine.
"""

import hashlib
from collections.abc import Sequence

import torch

from alewm.devices import why_no_triton
from alewm.shapes import Float, Tensor

StreamKey = tuple[int, int, int]
"""(seed, episode, plan index)."""


def stream_seed(purpose: str, *key: int) -> int:
    """A 63-bit seed that is a fixed function of the stream's name."""
    name = f"{purpose}:{','.join(str(int(part)) for part in key)}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1


def stream(purpose: str, *key: int, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator of one stream, at its beginning."""
    return torch.Generator(device).manual_seed(stream_seed(purpose, *key))


def candidate_noise(
    keys: Sequence[StreamKey],
    num_iterations: int,
    num_candidates: int,
    horizon: int,
    action_dim: int,
    *,
    device: torch.device | str,
) -> Float[Tensor, "iterations B S H A"]:
    """Standard normal noise for every iteration of every episode's plan, with candidate 0 zero (it is the mean)."""
    shape = (num_iterations, num_candidates, horizon, action_dim)
    if why_no_triton(torch.device(device)) is None:
        return drawn_at_once(keys, shape, device)
    noise = torch.empty((num_iterations, len(keys), *shape[1:]), device=device)
    for b, key in enumerate(keys):
        source = stream("candidates", *key, device=device)
        noise[:, b] = torch.randn(shape, generator=source, device=source.device)
    noise[:, :, 0] = 0
    return noise


def drawn_at_once(
    keys: Sequence[StreamKey], shape: tuple[int, int, int, int], device: torch.device | str
) -> Float[Tensor, "iterations B S H A"]:
    """`candidate_noise` by one kernel: a counter-based generator gives entry n of a stream without the n - 1 before it.

    A generator per episode costs a GPU's processor a tenth of a millisecond each.
    """
    import triton

    from alewm.kernels.planning_kernels import draw_noise

    num_iterations, num_candidates, horizon, action_dim = shape
    seeds = torch.tensor([stream_seed("candidates", *key) for key in keys], device=device)
    noise = torch.empty((num_iterations, len(keys), *shape[1:]), device=device)
    per_candidate = horizon * action_dim
    per_episode = num_iterations * num_candidates * per_candidate
    size = 1024
    draw_noise[(len(keys), triton.cdiv(per_episode, size))](
        noise, seeds, len(keys), per_candidate, num_candidates * per_candidate, per_episode, SIZE=size
    )
    return noise
