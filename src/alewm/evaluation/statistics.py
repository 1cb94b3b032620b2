"""How sure a success rate is."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, fmean, stdev

from alewm.errors import InputError


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a proportion: never outside [0, 1], and of positive width at 0 and at 1.

    Without trials nothing is known, and the interval is all of [0, 1].
    """
    if not 0 <= successes <= trials:
        raise InputError(f"A proportion needs 0 ≤ successes ≤ trials, got {successes} of {trials}.")
    if not 0 < confidence < 1:
        raise InputError(f"A confidence lies strictly between 0 and 1, got {confidence}.")
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, shrink = successes / trials, 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / shrink
    half = z * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials)) / shrink
    # At the ends centre and half differ only by rounding, which must not leave a bound of 1e-17.
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == trials else centre + half)


@dataclass(frozen=True)
class Proportion:
    """Successes among trials."""

    successes: int
    trials: int

    @classmethod
    def of(cls, outcomes: Sequence[bool]) -> "Proportion":
        """The share of true outcomes."""
        return cls(sum(map(bool, outcomes)), len(outcomes))

    @property
    def rate(self) -> float | None:
        """The share, or None where there were no trials."""
        return self.successes / self.trials if self.trials else None

    @property
    def interval(self) -> list[float]:
        """Wilson's 95 % interval."""
        return list(wilson_interval(self.successes, self.trials))


@dataclass(frozen=True)
class Spread:
    """A mean over seeds with its standard error."""

    mean: float
    sem: float | None
    """Sample standard deviation over the root of n; None for a single seed, which has none."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of one number per seed, a success rate for instance."""
        if not values:
            raise InputError("A mean over seeds needs at least one seed.")
        sem = stdev(values) / sqrt(len(values)) if len(values) > 1 else None
        return cls(fmean(values), sem)

    def shown(self, digits: int = 2) -> str:
        """`mean ± SEM` to `digits` decimals."""
        return self._text(1.0, digits)

    def percent(self, digits: int = 2) -> str:
        """The same of a rate in percent."""
        return self._text(100.0, digits)

    def _text(self, scale: float, digits: int) -> str:
        mean = f"{scale * self.mean:.{digits}f}"
        return mean if self.sem is None else f"{mean} ± {scale * self.sem:.{digits}f}"
