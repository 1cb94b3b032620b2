"""Every random number of training: named streams, and the draws of one update."""

import hashlib
from typing import NamedTuple

import torch

from alewm.capacity.support import gumbel_noise
from alewm.distributed import num_ranks, own_rows
from alewm.errors import InputError
from alewm.model.world_model import WorldModel
from alewm.shapes import Bool, Float, Tensor

STREAMS = ("capacities", "dropout", "directions")


def seeded_generator(seed: int, name: str, device: torch.device | None = None) -> torch.Generator:
    """A generator that depends on the run's seed and on what it is for, and on nothing else."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator(device or "cpu").manual_seed(int.from_bytes(digest, "big") >> 1)


class StepNoise(NamedTuple):
    """The per-sample draws of one update."""

    gumbel: Float[Tensor, "B C"]
    """Noise of the capacity choice."""
    keep: Bool[Tensor, "B draws"] | None
    """Dropout decisions; None where nothing is dropped."""


class RandomStreams:
    """The generators of a run, equal on all ranks, each with one use."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._generators = {name: seeded_generator(seed, name, device) for name in STREAMS}

    @property
    def directions(self) -> torch.Generator:
        """The stream of the regularizer's random directions."""
        return self._generators["directions"]

    def generators(self) -> tuple[torch.Generator, ...]:
        return tuple(self._generators.values())

    def draw_step(self, model: WorldModel, num_windows: int, num_positions: int, *, drops: bool) -> StepNoise:
        """The noise of the `num_windows` windows this rank holds.

        Drawn for the whole batch and sliced, so that a window meets the same noise however many ranks share the batch.
        """
        whole = num_windows * num_ranks()
        generator = self._generators["capacities"]
        gumbel = own_rows(gumbel_noise(whole, len(model.support), generator=generator))
        draws = model.predictor.dropout_draws(num_positions) if drops else 0
        if draws == 0:
            return StepNoise(gumbel, None)
        generator = self._generators["dropout"]
        keep = torch.empty(whole, draws, dtype=torch.bool, device=generator.device)
        keep.bernoulli_(1 - model.config.predictor.dropout, generator=generator)
        return StepNoise(gumbel, own_rows(keep))

    def state_dict(self) -> dict[str, Tensor]:
        """The position of every stream, as bytes."""
        return {name: generator.get_state() for name, generator in self._generators.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if state.keys() != self._generators.keys():
            raise InputError(f"Expected the random streams {sorted(self._generators)}, found {sorted(state)}.")
        for name, generator in self._generators.items():
            if state[name].shape != generator.get_state().shape:
                raise InputError(
                    f"The random stream {name!r} was saved on another kind of device than {generator.device.type}; "
                    f"resume on the device the run began on."
                )
            generator.set_state(state[name].cpu())
