"""Which capacity an episode is planned with, decided from its first and its goal frame.

A rule names one or several capacities per episode. Where it names several, the planner plans with each and keeps the
one whose plan has the lowest predicted cost; from then on the episode keeps it, unless the rule decides anew from the
current and the goal frame at every plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from alewm.capacity.support import CapacitySupport, modal_index
from alewm.errors import InputError, unknown_name
from alewm.planning.noise import stream
from alewm.shapes import Float, Tensor

RULES = ("modal", "modal-every-plan", "sample", "best-of")


@dataclass(frozen=True)
class CapacityRule:
    """From q(k | first, goal) to the capacities worth planning with.

    - `modal`: the most probable capacity, the paper's rule; a tie goes to the smaller.
    - `sample`: a draw from q, with a stream per seed and episode.
    - `named`: the same capacities for every episode, whatever q says. Of several the lowest predicted cost wins. Costs
      are means over the compared coordinates. Under the active goal cost different capacities compare different
      coordinates, so the winner is the prefix in which the goal looks closest, not necessarily the most faithful one.
    """

    kind: Literal["modal", "sample", "named"] = "modal"
    named: tuple[int, ...] = ()
    """The capacities of the kind `named`."""
    decides_every_plan: bool = False
    """Whether it looks again at every plan, instead of once per episode."""

    def choices(
        self, q: Float[Tensor, "B C"], support: CapacitySupport, seed: int, episodes: Sequence[int]
    ) -> list[tuple[int, ...]]:
        """The capacities to try, per episode, in increasing order."""
        if self.kind == "named":
            return [self.named] * len(q)
        indices = modal_index(q) if self.kind == "modal" else _drawn(q, seed, episodes)
        return [(support.capacities[c],) for c in indices.tolist()]


def _drawn(q: Float[Tensor, "B C"], seed: int, episodes: Sequence[int]) -> Tensor:
    """An index drawn from each row of q."""
    streams = (stream("capacity", seed, episode) for episode in episodes)
    uniform = torch.cat([torch.rand(1, generator=source, dtype=torch.float64) for source in streams])
    cumulative = q.cpu().double().cumsum(-1)
    return (cumulative <= uniform[:, None]).sum(-1).clamp(max=q.shape[-1] - 1)


def parse_capacity_rule(text: str, support: CapacitySupport) -> CapacityRule:
    """The rule that `--capacity` names.

    `modal`, `modal-every-plan`, `sample`, `best-of`, `best-of:8,32`, or a capacity such as `32`.
    """
    name = text.strip()
    if name in ("modal", "modal-every-plan"):
        return CapacityRule("modal", decides_every_plan=name == "modal-every-plan")
    if name == "sample":
        return CapacityRule("sample")
    if name == "best-of":
        return CapacityRule("named", support.capacities)
    if name.startswith("best-of:"):
        return CapacityRule("named", _several(name.removeprefix("best-of:"), support))
    if name.lstrip("-").isdecimal():
        return CapacityRule("named", (_capacity(text, support),))
    raise unknown_name("capacity rule", text, [*RULES, *map(str, support.capacities)])


def _several(listed: str, support: CapacitySupport) -> tuple[int, ...]:
    if not listed:
        raise InputError("best-of: names no capacities; write best-of:8,32, or best-of for all.")
    capacities = tuple(_capacity(part, support) for part in listed.split(","))
    if len(set(capacities)) < len(capacities):
        raise InputError(f"best-of:{listed} names a capacity twice; name each once.")
    return tuple(sorted(capacities))


def _capacity(text: str, support: CapacitySupport) -> int:
    if not text.strip().isdecimal():
        raise InputError(f"A capacity is one of {support.capacities}, got {text!r}; write best-of:8,32 for several.")
    return support.capacities[support.index_of(int(text))]
