"""Which capacity an episode is planned with, decided from its first and its goal frame.

A rule names one or several capacities per episode. Where it names several, the planner plans with each and keeps the
one whose plan has the lowest predicted cost; from then on the episode keeps it, unless the rule decides anew from the
current and the goal frame at every plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch

from alewm.capacity.prefix import modal_index
from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError, unknown_name
from alewm.planning.noise import stream
from alewm.shapes import Float, Tensor

RULES = ("modal", "modal-every-plan", "sample", "best-of")


@runtime_checkable
class CapacityRule(Protocol):
    """From q(k | first, goal) to the capacities worth planning with."""

    @property
    def decides_every_plan(self) -> bool:
        """Whether it looks again at every plan, instead of once per episode."""
        ...

    def choices(
        self, q: Float[Tensor, "B C"], support: CapacitySupport, seed: int, episodes: Sequence[int]
    ) -> list[tuple[int, ...]]:
        """The capacities to try, per episode, in increasing order."""
        ...


@dataclass(frozen=True)
class Modal:
    """The most probable capacity, the paper's rule; a tie goes to the smaller."""

    decides_every_plan: bool = False

    def choices(
        self,
        q: Float[Tensor, "B C"],
        support: CapacitySupport,
        seed: int,
        episodes: Sequence[int],
    ) -> list[tuple[int, ...]]:
        """One capacity per episode."""
        return [(support.capacities[c],) for c in modal_index(q).tolist()]


@dataclass(frozen=True)
class Fixed:
    """The same capacity for every episode, whatever the selector says."""

    capacity: int
    decides_every_plan: ClassVar[bool] = False

    def choices(
        self,
        q: Float[Tensor, "B C"],
        support: CapacitySupport,
        seed: int,
        episodes: Sequence[int],
    ) -> list[tuple[int, ...]]:
        """The fixed capacity, checked to be supported."""
        support.index_of(self.capacity)
        return [(self.capacity,)] * len(q)


@dataclass(frozen=True)
class Sample:
    """A draw from q, with a stream per (seed, episode)."""

    decides_every_plan: ClassVar[bool] = False

    def choices(
        self, q: Float[Tensor, "B C"], support: CapacitySupport, seed: int, episodes: Sequence[int]
    ) -> list[tuple[int, ...]]:
        """One capacity per episode."""
        streams = (stream("capacity", seed, episode) for episode in episodes)
        uniform = torch.cat([torch.rand(1, generator=source, dtype=torch.float64) for source in streams])
        cumulative = q.cpu().double().cumsum(-1)
        drawn = (cumulative <= uniform[:, None]).sum(-1).clamp(max=len(support) - 1)
        return [(support.capacities[c],) for c in drawn.tolist()]


@dataclass(frozen=True)
class BestOf:
    """Every named capacity is planned with, and the lowest predicted cost wins; no names means the whole support.

    Costs are means over the compared coordinates. Under the active goal cost different capacities compare different
    coordinates, so the winner is the prefix in which the goal looks closest, not necessarily the most faithful one.
    """

    capacities: tuple[int, ...] = ()
    decides_every_plan: ClassVar[bool] = False

    def choices(
        self,
        q: Float[Tensor, "B C"],
        support: CapacitySupport,
        seed: int,
        episodes: Sequence[int],
    ) -> list[tuple[int, ...]]:
        """The same several capacities for every episode."""
        for capacity in self.capacities:
            support.index_of(capacity)
        return [tuple(sorted(set(self.capacities))) or support.capacities] * len(q)


def parse_capacity_rule(text: str, support: CapacitySupport) -> CapacityRule:
    """The rule that `--capacity` names.

    `modal`, `modal-every-plan`, `sample`, `best-of`, `best-of:8,32`, or a capacity such as `32`.
    """
    name = text.strip()
    if name == "modal":
        return Modal()
    if name == "modal-every-plan":
        return Modal(decides_every_plan=True)
    if name == "sample":
        return Sample()
    if name == "best-of":
        return BestOf()
    if name.startswith("best-of:"):
        return BestOf(_several(name.removeprefix("best-of:"), support))
    if name.lstrip("-").isdecimal():
        return Fixed(_capacity(text, support))
    raise unknown_name("capacity rule", text, [*RULES, *map(str, support.capacities)])


def _several(listed: str, support: CapacitySupport) -> tuple[int, ...]:
    if not listed:
        raise InputError("best-of: names no capacities; write best-of:8,32, or best-of for all.")
    capacities = tuple(_capacity(part, support) for part in listed.split(","))
    if len(set(capacities)) < len(capacities):
        raise InputError(f"best-of:{listed} names a capacity twice; name each once.")
    return capacities


def _capacity(text: str, support: CapacitySupport) -> int:
    if not text.strip().isdecimal():
        raise InputError(f"A capacity is one of {support.capacities}, got {text!r}; write best-of:8,32 for several.")
    return support.capacities[support.index_of(int(text))]
