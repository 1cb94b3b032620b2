"""Intervals of success rates, paired differences, and statistics of the chosen capacities."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import fsum, pi, sqrt, tan
from statistics import NormalDist, fmean, stdev
from typing import Any

import numpy as np

from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError
from alewm.shapes import Float, Tensor


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a proportion: never outside [0, 1], and of positive width at 0 and at 1.

    Without trials nothing is known, and the interval is all of [0, 1].
    """
    _check(successes, trials)
    if not 0 < confidence < 1:
        raise InputError(f"A confidence lies strictly between 0 and 1, got {confidence}.")
    return _score_interval(successes, trials, float(trials), NormalDist().inv_cdf((1 + confidence) / 2))


def family_interval(families: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """A 95 % interval for a proportion whose trials come in families: (successes, trials) of each.

    Copies of one demonstration succeed together, so that 200 pairs of 20 demonstrations say less than 200 independent
    ones. This is Wilson's interval with two changes that surveys with clusters are used to. The number of trials is
    divided by the design effect: how many times larger the variance of the rate is, estimated over families, than that
    of independent trials, and 1 at least. The quantile is Student's, with one degree of freedom less than there are
    families, since the variance is an estimate.

    A bootstrap over families would do the same in the middle, but its intervals have no width at 0 and 1, are too
    narrow with 20 families, and depend on a seed. Where all trials end alike no design effect can be measured; it is
    then 1, which is its limit when a single trial differs. One family alone says nothing of others: [0, 1].
    """
    families = [(successes, trials) for successes, trials in families if trials]
    successes, trials = (sum(family[i] for family in families) for i in range(2))
    _check(successes, trials)
    if len(families) < 2:
        return 0.0, 1.0
    rate, independent = successes / trials, successes * (trials - successes) / trials**3
    apart = sum((part - count * rate) ** 2 for part, count in families)
    variance = len(families) / (len(families) - 1) * apart / trials**2
    effective = trials / max(1.0, variance / independent if independent else 1.0)
    return _score_interval(successes, trials, effective, student_quantile(0.975, len(families) - 1))


def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t, exact for one and two degrees of freedom.

    Beyond, it is the expansion around the normal quantile in Abramowitz and Stegun 26.7.5: for a probability of 0.975
    within 0.005 with three degrees of freedom, and within 0.0001 from ten on.
    """
    if freedom == 1:
        return tan(pi * (probability - 0.5))
    if freedom == 2:
        return (2 * probability - 1) / sqrt(2 * probability * (1 - probability))
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return fsum(term / float(freedom) ** power for power, term in enumerate(terms))


def _check(successes: int, trials: int) -> None:
    if not 0 <= successes <= trials:
        raise InputError(f"A proportion needs 0 ≤ successes ≤ trials, got {successes} of {trials}.")


def _score_interval(successes: int, trials: int, effective: float, z: float) -> tuple[float, float]:
    """Wilson's interval with the quantile `z`, for trials that are worth as much as `effective` independent ones."""
    if trials == 0:
        return 0.0, 1.0
    rate, shrink = successes / trials, 1 + z * z / effective
    centre = (rate + z * z / (2 * effective)) / shrink
    half = z * sqrt(rate * (1 - rate) / effective + z * z / (4 * effective * effective)) / shrink
    # At the ends centre and half differ only by rounding, which must not leave a bound of 1e-17.
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == trials else centre + half)


@dataclass(frozen=True)
class Proportion:
    """Successes among trials."""

    successes: int
    trials: int
    families: tuple[tuple[int, int], ...] = ()
    """Successes and trials of each family of trials; empty where trials are independent."""

    @classmethod
    def of(cls, outcomes: Sequence[bool], families: Sequence[int | None] = ()) -> "Proportion":
        """The share of true outcomes; `families` says which of them belong together, if any do.

        Where the family of an outcome is not known, outcomes are taken for independent.
        """
        if families and len(families) != len(outcomes):
            raise InputError(f"{len(outcomes)} outcomes need as many families, got {len(families)}.")
        counts: dict[int | None, tuple[int, int]] = {}
        for outcome, family in zip(outcomes, families, strict=False):
            successes, trials = counts.get(family, (0, 0))
            counts[family] = successes + bool(outcome), trials + 1
        known = () if None in counts else tuple(counts.values())
        return cls(sum(map(bool, outcomes)), len(outcomes), known)

    @property
    def rate(self) -> float | None:
        """The share, or None where there were no trials."""
        return self.successes / self.trials if self.trials else None

    @property
    def interval(self) -> list[float]:
        """The 95 % interval: by family where trials come in families, else Wilson's."""
        return list(family_interval(self.families) if self.families else wilson_interval(self.successes, self.trials))


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


NUM_RESAMPLES = 10_000
"""Resamples of a bootstrap and of a test by random signs."""

_MOST_ENUMERATED = 14
"""Clusters of which all signs are tried instead of random ones."""


@dataclass(frozen=True)
class PairedDifference:
    """How much more often one method succeeds than another on the same pairs."""

    difference: float
    """Of the mean success rates over seeds and pairs, from -1 to 1."""
    interval: tuple[float, float]
    """95 % of a bootstrap over the seeds of each method and the clusters of pairs."""
    p_value: float
    """Two-sided, of these models: how often random signs of the clusters' differences give as large a sum."""
    num_clusters: int
    """Episodes, or demonstrations where episodes are copies."""
    num_seeds: tuple[int, int]
    """Of both methods; of one seed the interval says nothing about others."""
    won: int
    """Seeds and pairs, matched in order, of which only the first method succeeds; 0 where numbers of seeds differ."""
    lost: int
    """The same of the second."""

    @property
    def verdict(self) -> str:
        """`ahead`, `behind` or, where the interval holds zero, `undecided`."""
        low, high = self.interval
        return "ahead" if low > 0 else "behind" if high < 0 else "undecided"

    def __str__(self) -> str:
        low, high = (f"{100 * bound:+.1f}" for bound in self.interval)
        return f"{100 * self.difference:+.1f} points ({low} to {high}; p = {self.p_value:.2g})"


def compare_paired(
    first: Sequence[Sequence[bool]] | np.ndarray,
    second: Sequence[Sequence[bool]] | np.ndarray,
    clusters: Sequence[Hashable],
    *,
    num_resamples: int = NUM_RESAMPLES,
) -> PairedDifference:
    """The success of `first` minus that of `second`: an outcome per model seed and pair, the same pairs for all.

    `clusters` names for each pair what it has in common with others: its episode, or the demonstration that its episode
    is a copy of. The bootstrap draws clusters, the same for both methods, and for each method its seeds, since a model
    of one method has no partner in the other. Few seeds make its interval too narrow: three are drawn from three.
    """
    ours, theirs = (np.array(outcomes, dtype=float) for outcomes in (first, second))
    for outcomes in (ours, theirs):
        if outcomes.ndim != 2 or not outcomes.size or outcomes.shape[1] != len(clusters):
            raise InputError(
                f"Each method needs an outcome per seed for the same {len(clusters)} pairs, got the shapes "
                f"{list(ours.shape)} and {list(theirs.shape)}."
            )
    (our_sums, sizes), (their_sums, _) = (_by_cluster(outcomes, clusters) for outcomes in (ours, theirs))
    rng = np.random.default_rng(0)  # one seed, so that the same records give the same interval
    drawn = rng.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=num_resamples)
    means = [_resampled_mean(sums, sizes, drawn, rng) for sums in (our_sums, their_sums)]
    low, high = np.quantile(means[0] - means[1], [0.025, 0.975])
    matched = ours.shape == theirs.shape
    return PairedDifference(
        float(ours.mean() - theirs.mean()),
        (float(low), float(high)),
        sign_flip_p_value(our_sums.mean(0) - their_sums.mean(0), rng, num_resamples),
        len(sizes),
        (len(ours), len(theirs)),
        int((ours > theirs).sum()) if matched else 0,
        int((ours < theirs).sum()) if matched else 0,
    )


def sign_flip_p_value(differences: np.ndarray, rng: np.random.Generator, num_resamples: int) -> float:
    """How often random signs of `differences` [clusters] make a sum as far from zero as theirs; exact for few of them.

    If neither method is better, each cluster would as well have come out the other way round.
    """
    moving = differences[differences != 0]
    if len(moving) <= _MOST_ENUMERATED:
        signs = 1 - 2 * ((np.arange(2 ** len(moving))[:, None] >> np.arange(len(moving))) & 1)
        counted, of = 0, len(signs)
    else:
        signs = rng.choice([-1, 1], size=(num_resamples, len(moving)))
        counted, of = 1, num_resamples + 1  # the signs as found are one of all
    sums = np.abs(signs @ moving)
    return float((counted + (sums >= abs(moving.sum()) - 1e-9).sum()) / of)


def _by_cluster(outcomes: np.ndarray, clusters: Sequence[Hashable]) -> tuple[np.ndarray, np.ndarray]:
    """Sums of `outcomes` [seeds, pairs] over each cluster [seeds, clusters], and the clusters' sizes."""
    places = {name: place for place, name in enumerate(dict.fromkeys(clusters))}
    member = np.zeros((len(clusters), len(places)))
    member[np.arange(len(clusters)), [places[name] for name in clusters]] = 1
    return outcomes @ member, member.sum(0)


def _resampled_mean(sums: np.ndarray, sizes: np.ndarray, drawn: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The mean outcome of each resample [R]: clusters as often as `drawn` [R, clusters] says, and seeds drawn here."""
    rates = drawn @ sums.T / (drawn @ sizes)[:, None]
    num_seeds = len(sums)
    seeds = rng.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=len(drawn))
    mean: np.ndarray = (rates * seeds).sum(1) / num_seeds
    return mean


def total_variation(p: Float[Tensor, "*batch C"], q: Float[Tensor, "C"]) -> Float[Tensor, "*batch"]:
    """½ Σ |p - q|: 0 for equal distributions, 1 for disjoint ones."""
    return (p - q).abs().sum(-1) / 2


def capacity_use(
    capacities: Sequence[int], q: Float[Tensor, "B C"], prior: Float[Tensor, "C"], support: CapacitySupport
) -> dict[str, Any]:
    """Counts and means of the planned capacities, and how q(k | first, goal) moved and varies.

    - `capacity_counts`: episodes per supported capacity, unused ones included;
    - `mean_capacity`: mean over episodes of the planned capacity;
    - `q_mean`: the mean of q over episodes, in the order of `support`;
    - `q_shift`: total-variation distance of `q_mean` from the prior. 0 is a selector that never left its start;
    - `q_spread`: mean over episodes of the total-variation distance of q from `q_mean`. 0 is a selector that ignores
      what it sees.
    """
    q, prior = q.cpu().double(), prior.cpu().double()
    mean = q.mean(0)
    return {
        "support": list(support.capacities),
        "capacity_counts": {str(k): sum(chosen == k for chosen in capacities) for k in support.capacities},
        "mean_capacity": sum(capacities) / len(capacities),
        "q_mean": mean.tolist(),
        "q_prior": prior.tolist(),
        "q_shift": total_variation(mean, prior).item(),
        "q_spread": total_variation(q, mean).mean().item(),
    }
