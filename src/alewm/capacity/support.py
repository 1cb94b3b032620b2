"""The ordered set 𝒦 = {k_1 < ... < k_C = D} of capacities a model may use."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from alewm.errors import InputError


@dataclass(frozen=True)
class CapacitySupport:
    """Strictly increasing positive capacities; the last is the latent width D."""

    capacities: tuple[int, ...]

    def __post_init__(self) -> None:
        ks = self.capacities
        if not isinstance(ks, tuple) or not all(type(k) is int for k in ks):
            raise InputError(f"A capacity support is a tuple of integers, got {ks!r}.")
        if not ks or ks[0] < 1 or any(a >= b for a, b in pairwise(ks)):
            raise InputError(f"Capacities must be positive and strictly increasing, got {ks}.")

    @classmethod
    def every(cls, latent_dim: int) -> "CapacitySupport":
        """The support {1, ..., D}."""
        return cls(tuple(range(1, latent_dim + 1)))

    @classmethod
    def full(cls, latent_dim: int) -> "CapacitySupport":
        """The support {D}: no choice at all, which is LeWM."""
        return cls((latent_dim,))

    def of_width(self, latent_dim: int) -> "CapacitySupport":
        """This support, checked to end in `latent_dim`."""
        if self.latent_dim != latent_dim:
            raise InputError(
                f"The support {self.capacities} ends in {self.latent_dim}, but the latent has {latent_dim} "
                f"coordinates; its largest capacity must be the latent width."
            )
        return self

    def __len__(self) -> int:
        return len(self.capacities)

    @property
    def latent_dim(self) -> int:
        """D, the largest capacity."""
        return self.capacities[-1]

    @cached_property
    def block_sizes(self) -> tuple[int, ...]:
        """How many coordinates each capacity adds to the one before it."""
        return tuple(b - a for a, b in pairwise((0, *self.capacities)))

    def index_of(self, capacity: int) -> int:
        """The position c of `capacity` = k_c."""
        if capacity not in self.capacities:
            raise InputError(f"Capacity {capacity} is not supported; choose one of {self.capacities}.")
        return self.capacities.index(capacity)
