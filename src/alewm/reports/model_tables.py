"""Published models as tables, before any planning: how well they predict, what q became, what latents hold."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from alewm.evaluation.statistics import Spread
from alewm.experiments.probes import PROBES
from alewm.presentation.tables import Row, Table
from alewm.reports.configuration_names import COLUMNS, NONE, named_columns
from alewm.reports.published import PublishedRun, Scale

_NEEDED = {"validation/prediction", "validation/q_entropy", "latent/effective_rank"}
_LEARNED = (
    "What training ended with. On validation windows: the error of prediction over the variance of masked latents, the "
    "entropy of q in nats, and the largest mean q. On the last batch that was looked at in training: the effective "
    "rank of latents, and how far the variance of a masked coordinate is from the prior's survival, which the "
    "regularizer asks for, on average over coordinates."
)
_PROBED = (
    "R² of the true state, mean over what one frame shows of it, from the first k coordinates of the latent; probes "
    "are fitted on training frames and scored on frames of test episodes."
)


def learned_table(scale: Scale, note: str) -> Table | None:
    """What training ended with; None where no run has validated and looked at its latents."""
    shown = scale.only(lambda run: _ended(run).keys() >= _NEEDED and len(run.latent) > 0)
    rows: list[Row] = []
    for named, each in zip(named_columns(shown), shown, strict=True):
        error, entropy, rank, misfit = (
            Spread.of([measure(run) for run in each.runs]) for measure in (_error, _entropy, _rank, _misfit)
        )
        q = [entropy.shown(), _largest(each.runs)] if len(_q(each.runs[0])) > 1 else [NONE, NONE]
        rows.append([*named, each.seeds, error.shown(3), *q, rank.shown(1), misfit.shown(3)])
    head = (*COLUMNS, "seeds", "error / variance", "entropy of q", "largest q", "rank", "variance off by")
    return Table.of(f"{scale.slug}-learned", _LEARNED + note, head, rows) if rows else None


def probes_table(scale: Scale, note: str) -> Table | None:
    """What each prefix says of the true state; None where nobody probed."""
    shown = scale.only(lambda run: "probes" in run.measurements)
    found = [[run.measurements["probes"]["measured"] for run in each.runs] for each in shown]
    ks = sorted({int(k) for seeds in found for measured in seeds for k in measured[PROBES[0]]})
    rows: list[Row] = []
    for named, each, seeds in zip(named_columns(shown), shown, found, strict=True):
        for probe in PROBES:
            means = {k: [seed[probe][str(k)]["mean"] for seed in seeds if str(k) in seed[probe]] for k in ks}
            cells = [Spread.of(means[k]).shown(digits=3) if means[k] else NONE for k in ks]
            rows.append([*named, each.seeds, probe, *cells])
    head = (*COLUMNS, "seeds", "probe", *(f"k = {k}" for k in ks))
    return Table.of(f"{scale.slug}-probes", _PROBED + note, head, rows) if rows else None


def _ended(run: PublishedRun) -> dict[str, Any]:
    training: dict[str, Any] = run.run.result["training"]
    return training


def _q(run: PublishedRun) -> dict[int, float]:
    start = "validation/q/"
    return {int(name.removeprefix(start)): q for name, q in _ended(run).items() if name.startswith(start)}


def _error(run: PublishedRun) -> float:
    return float(_ended(run)["validation/prediction"]) / fmean(row["masked_variance"] for row in run.latent)


def _entropy(run: PublishedRun) -> float:
    return float(_ended(run)["validation/q_entropy"])


def _rank(run: PublishedRun) -> float:
    return float(_ended(run)["latent/effective_rank"])


def _misfit(run: PublishedRun) -> float:
    return fmean(abs(row["masked_variance"] - row["prior_survival"]) for row in run.latent)


def _largest(runs: Sequence[PublishedRun]) -> str:
    """The capacity with the largest q of each run, once where they agree."""
    tops = [max(q.items(), key=lambda item: item[1]) for q in map(_q, runs)]
    shares = [f"{share:.2f}" for _, share in tops]
    if len({k for k, _ in tops}) == 1:
        low, high = min(shares), max(shares)
        return f"{tops[0][0]}: {low}" if low == high else f"{tops[0][0]}: {low} to {high}"
    return "; ".join(f"{k}: {share}" for (k, _), share in zip(tops, shares, strict=True))
