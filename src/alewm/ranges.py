"""Which numbers are accepted: ranges of fields, said in their types and checked wherever one is made, and seeds."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from alewm.errors import InputError


@dataclass(frozen=True)
class Range:
    """Finite numbers of `least` or more, below `end`."""

    rule: str
    """What a field of this range is told to be, after its name."""
    least: int | float = -math.inf
    end: int | float = math.inf
    excludes_least: bool = False

    def check(self, name: str, value: int | float | None) -> None:
        """Refuses a `value` outside; `name` is what it was given as. None is a field that was left open."""
        if value is None:
            return
        # Written so that NaN, which compares with nothing, is outside.
        is_inside = self.least <= value < self.end and not (self.excludes_least and value == self.least)
        if not is_inside:
            raise InputError(f"{name} {self.rule}, got {value}.")


AT_LEAST_1 = Range("must be at least 1", least=1)
AT_LEAST_0 = Range("must not be negative", least=0)

Count = Annotated[int, AT_LEAST_1]
CountOrZero = Annotated[int, AT_LEAST_0]
Finite = Annotated[float, Range("must be a finite number", excludes_least=True)]
Positive = Annotated[float, Range("must be positive and finite", least=0, excludes_least=True)]
NotNegative = Annotated[float, Range("must be finite and not negative", least=0)]
Share = Annotated[float, Range("is a share in [0, 1)", least=0, end=1)]


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuses seeds of which one is negative or named twice, and no seed at all."""
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise InputError(f"Seeds must be distinct and not negative, at least one; got {tuple(seeds)}.")


def check_ranges(config: Any) -> None:
    """Refuses a config dataclass with a number outside of its field's range."""
    for name, allowed in ranges_of(config.__class__).items():
        allowed.check(name, getattr(config, name))


@cache
def ranges_of(kind: Hashable) -> dict[str, Range]:
    """The range of every field of `kind` whose type says one."""
    hints = get_type_hints(kind, include_extras=True)
    notes = [(name, note) for name, hint in hints.items() if get_origin(hint) is Annotated for note in get_args(hint)]
    return {name: note for name, note in notes if isinstance(note, Range)}
