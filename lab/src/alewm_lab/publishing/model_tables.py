"""Published models as tables, before any planning: how well they predict, what q became, what latents hold."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from alewm.capacity.prior import distance_from_survival
from alewm.envs.registry import get_task
from alewm.errors import InputError
from alewm.evaluation.probes import PROBES
from alewm.evaluation.statistics import Spread
from alewm.tables import NONE, Row, Table
from alewm_lab.publishing.configuration_names import COLUMNS, named_columns
from alewm_lab.publishing.published import PublishedRun, Scale

_NEEDED = {"validation/prediction", "validation/q_entropy", "latent/effective_rank"}
_LEARNED = (
    "What training ended with. On validation windows: the error of prediction, over the variance of latents, which are "
    "what is predicted, and over that of masked latents; the entropy of q in nats, and the largest mean q. On the last "
    "batch that was looked at in training: both variances, the effective rank of latents, and how far the variance of "
    "a masked coordinate is from the prior's survival, which the regularizer asks for, on average over coordinates. "
    "Masked latents vary less than latents, so the second error compares models that mask alike, not ALeWM with LeWM; "
    "the first compares all, but older records of models that mask lack it. Where only the prefix is predicted, "
    "neither is known."
)
_PROBED = (
    "R² of the true state, mean over what one frame shows of it, from the first k coordinates of the latent, and what "
    "is read worst from the whole latent; probes are fitted on training frames and scored on frames of test episodes."
)


def learned_table(scale: Scale, note: str) -> Table | None:
    """What training ended with; None where no run has validated and looked at its latents."""
    shown = scale.only(lambda run: _ended(run).keys() >= _NEEDED and len(run.latent) > 0)
    rows: list[Row] = []
    for named, each in zip(named_columns(shown), shown, strict=True):
        entropy, rank, misfit = (
            Spread.of([measure(run) for run in each.runs]) for measure in (_entropy, _rank, _misfit)
        )
        errors = [_shown([measure(run) for run in each.runs]) for measure in (_error, _masked_error)]
        q = [entropy.shown(), _largest(each.runs)] if len(_q(each.runs[0])) > 1 else [NONE, NONE]
        rows.append([*named, each.seeds, *errors, *q, rank.shown(1), misfit.shown(3)])
    head = [*COLUMNS, "seeds", "error / variance", "error / masked variance"]
    head += ["entropy of q", "largest q", "rank", "variance off by"]
    return Table.of(f"{scale.slug}-learned", _LEARNED + note, head, rows) if rows else None


def probes_table(scale: Scale, note: str) -> Table | None:
    """What each prefix says of the true state; None where nobody probed."""
    shown = scale.only(lambda run: "probes" in run.measurements)
    found = [[{probe: _probed(run, probe) for probe in PROBES} for run in each.runs] for each in shown]
    ks = sorted({k for seeds in found for seed in seeds for probed in seed.values() for k in probed})
    common = _common([probed for seeds in found for seed in seeds for probed in seed.values()])
    rows: list[Row] = []
    for named, each, seeds in zip(named_columns(shown), shown, found, strict=True):
        for probe in PROBES:
            of_seeds = [seed[probe] for seed in seeds]
            means = {
                k: [fmean(probed[k][name] for name in common) for probed in of_seeds if common and k in probed]
                for k in ks
            }
            cells = [Spread.of(means[k]).shown(digits=3) if means[k] else NONE for k in ks]
            rows.append([*named, each.seeds, probe, *cells, _worst([probed[max(probed)] for probed in of_seeds])])
    head = (*COLUMNS, "seeds", "probe", *(f"k = {k}" for k in ks), "worst")
    return Table.of(f"{scale.slug}-probes", _PROBED + note, head, rows) if rows else None


def _probed(run: PublishedRun, probe: str) -> dict[int, dict[str, float]]:
    """R² by capacity and name of what one frame shows of the state; joints it does not show are in some records."""
    names = [name for each in get_task(run.config["task"]).visible for name in each.names]
    try:
        measured = run.measurements["probes"]["measured"][probe]
        every = {int(k): {name: float(r2) for name, r2 in each["factors"].items()} for k, each in measured.items()}
        found = {k: {name: each[name] for name in names if name in each} for k, each in every.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        found = {}
    if not found or not all(found.values()):
        raise InputError(
            f"{run.place}: its measurement probes lacks R² of the {probe} probe by capacity and part of the state. "
            f"Publish the run again."
        )
    return found


def _common(probed: Sequence[dict[int, dict[str, float]]]) -> set[str]:
    """What all of them read: tasks may list more than older records have, and means of different things mislead."""
    read = [set(names) for by_capacity in probed for names in by_capacity.values()]
    return set.intersection(*read) if read else set()


def _worst(seeds: Sequence[dict[str, float]]) -> str:
    """What is read worst on average over seeds, and how well."""
    means = {name: fmean(seed[name] for seed in seeds) for name in seeds[0] if all(name in seed for seed in seeds)}
    name = min(means, key=lambda name: means[name], default=None)
    return NONE if name is None else f"{name}: {means[name]:.3f}"


def _ended(run: PublishedRun) -> dict[str, Any]:
    training: dict[str, Any] = run.run.result["training"]
    return training


def _q(run: PublishedRun) -> dict[int, float]:
    start = "validation/q/"
    return {int(name.removeprefix(start)): q for name, q in _ended(run).items() if name.startswith(start)}


def _shown(values: Sequence[float | None]) -> str:
    """Their mean and SEM, or nothing where one is not known."""
    known = [value for value in values if value is not None]
    return Spread.of(known).shown(3) if len(known) == len(values) else NONE


def _error(run: PublishedRun) -> float | None:
    """None where the variance of latents was not recorded and a mask makes that of masked ones another."""
    if len(_q(run)) == 1:
        return _masked_error(run)
    return _over_mean(run, [row.get("variance") for row in run.latent])


def _masked_error(run: PublishedRun) -> float | None:
    return _over_mean(run, [row["masked_variance"] for row in run.latent])


def _over_mean(run: PublishedRun, variances: Sequence[Any]) -> float | None:
    """The error of prediction as a share; None where a prefix is predicted, of which these are not the variances."""
    known = [float(variance) for variance in variances if variance is not None]
    if len(known) < len(variances) or run.config["objective"].get("prediction_target") == "prefix":
        return None
    return float(_ended(run)["validation/prediction"]) / fmean(known)


def _entropy(run: PublishedRun) -> float:
    return float(_ended(run)["validation/q_entropy"])


def _rank(run: PublishedRun) -> float:
    return float(_ended(run)["latent/effective_rank"])


def _misfit(run: PublishedRun) -> float:
    columns = ([float(row[name]) for row in run.latent] for name in ("masked_variance", "prior_survival"))
    return distance_from_survival(*columns)


def _largest(runs: Sequence[PublishedRun]) -> str:
    """The capacity with the largest q of each run, once where they agree."""
    tops = [max(q.items(), key=lambda item: item[1]) for q in map(_q, runs)]
    shares = [f"{share:.2f}" for _, share in tops]
    if len({k for k, _ in tops}) == 1:
        low, high = min(shares), max(shares)
        return f"{tops[0][0]}: {low}" if low == high else f"{tops[0][0]}: {low} to {high}"
    return "; ".join(f"{k}: {share}" for (k, _), share in zip(tops, shares, strict=True))
