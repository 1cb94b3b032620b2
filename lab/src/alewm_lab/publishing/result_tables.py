"""Published runs as tables: success beside its floors and the paper's, capacities, settings, predictions, probes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from alewm.envs.registry import get_task
from alewm.errors import InputError
from alewm.evaluation.probes import PROBES
from alewm.evaluation.statistics import Spread
from alewm.files import natural_order, read_json
from alewm.tables import Row, Table
from alewm.training.presets import SELECTED
from alewm_lab.experiments.capacity_dynamics import PATH_HEAD, PATH_LEGEND, path_cells
from alewm_lab.oscillator.measures import distance_from_survival
from alewm_lab.presentation import NONE
from alewm_lab.publishing.comparison_table import COLUMNS, TITLES, backbone, method_of, with_columns
from alewm_lab.publishing.published import Configuration, PublishedRun, RunGroup, seeds_of

_IMPOSED = re.compile(r"capacity-(\d+)")
"""Names of evaluations with a capacity that was imposed."""


def success_text(configuration: Configuration, name: str = "success_rate", settings: str = "") -> str:
    """Success in percent: mean and SEM over seeds, or, for one seed, the interval of its pairs and the words."""
    results = configuration.evaluated(settings)
    if not results or results[0][name] is None:
        return NONE
    spread = configuration.spread(name, settings)
    if spread.sem is not None:
        return spread.percent()
    low, high = (100 * bound for bound in results[0][name.replace("success_rate", "interval")])
    return f"{spread.percent(1)} ({low:.1f} to {high:.1f}), one seed"


def main_table(scale: RunGroup, paper: Mapping[str, Any] | None, caption: str) -> Table:
    """Every configuration evaluated with default settings, the floors below them; the paper's figures if given."""
    shown = [each for each in scale.configurations if each.evaluated()]
    rows: list[Row] = []
    for named, each in with_columns(shown):
        rows.append(
            [
                *named,
                _seeds(each),
                success_text(each),
                success_text(each, "success_rate_nontrivial"),
                each.spread("mean_capacity").shown(),
                _counts(each.evaluated()),
                *([] if paper is None else [_paper_cell(each, paper)]),
            ]
        )
    for name, key in (("uniform random", "random"), ("doing nothing", "zero"), ("recorded actions", "replay")):
        rates = [_range(shown, f"{key}_success_rate{kind}") for kind in ("", "_nontrivial")]
        if rates[0] != NONE:
            rows.append([name, *[NONE] * 5, *rates, *[NONE] * (2 if paper is None else 3)])
    head = [*COLUMNS, "seeds", "success (%)", "not solved at the start (%)", "mean capacity"]
    head += ["capacities (k: episodes)", *([] if paper is None else [f"paper, {paper['epochs']} epochs (%)"])]
    return Table.of(f"{scale.slug}-success", caption, head, rows)


def sweep_table(scale: RunGroup, caption: str) -> Table | None:
    """Success at every fixed capacity; None where no run was evaluated so."""
    shown = with_fixed_capacities(scale)
    if not shown:
        return None
    ks = sorted({k for each in shown for k in fixed_capacities(each)})
    rows: list[Row] = []
    for named, each in with_columns(shown):
        cells = [success_text(each, settings=f"capacity-{k}") for k in ks]
        chosen = each.spread("mean_capacity").shown() if each.evaluated() else NONE
        rows.append([*named, each.seeds, *cells, success_text(each), chosen])
    head = (*COLUMNS, "seeds", *(f"k = {k}" for k in ks), "as chosen", "mean capacity")
    return Table.of(f"{scale.slug}-capacities", caption, head, rows)


def with_fixed_capacities(scale: RunGroup) -> list[Configuration]:
    """Those runs on which some capacity was imposed: imposed and chosen capacities are compared on them."""
    return scale.only(lambda run: len(imposed_on(run)) > 0)


def imposed_on(run: PublishedRun) -> set[int]:
    """The capacities that were imposed on planning with it."""
    return {int(found[1]) for name in run.evaluations if (found := _IMPOSED.fullmatch(name))}


def fixed_capacities(configuration: Configuration) -> dict[int, Spread]:
    """Success by the capacity that was imposed on planning."""
    ks = sorted({k for run in configuration.runs for k in imposed_on(run)})
    return {k: configuration.spread("success_rate", f"capacity-{k}") for k in ks}


def settings_table(scale: RunGroup, caption: str) -> Table | None:
    """Success with other settings than the default ones, fixed capacities aside; None where there are none."""
    rows: list[Row] = []
    for named, each in with_columns(scale.configurations):
        for settings in sorted(
            {settings for run in (*each.runs, *each.repeats) for settings in run.evaluations if settings},
            key=natural_order,
        ):
            if not _IMPOSED.fullmatch(settings):
                results = each.evaluated(settings)
                cells = [success_text(each, settings=settings), success_text(each, "success_rate_nontrivial", settings)]
                capacity = each.spread("mean_capacity", settings).shown()
                seeds, pairs = _seeds(each, settings), str(results[0]["episodes"])
                rows.append([settings, pairs, *named, seeds, *cells, capacity])
    if not rows:
        return None
    rows.sort(key=lambda row: str(row[0]))
    head = ["settings", "pairs", *COLUMNS, "seeds", "success (%)", "not solved at the start (%)"]
    return Table.of(f"{scale.slug}-settings", caption, [*head, "mean capacity"], rows)


def repeats_table(group: RunGroup, note: str) -> Table | None:
    """What one seed trained several times reaches: the spread of everything but the seed; None where none was."""
    rows: list[Row] = []
    for named, each in with_columns(group.configurations):
        for trainings in each.repeated:
            common = set.intersection(*(set(run.evaluations) for run in trainings))
            for settings in sorted(common, key=natural_order):
                results = [run.evaluations[settings] for run in trainings]
                rates = [100 * float(result["success_rate"]) for result in results]
                ended = [[row["success"] for row in run.episodes.get(settings, ())] for run in trainings]
                differing = sum(len(set(pair)) > 1 for pair in zip(*ended, strict=True))
                marks = [" (d)" if run.config["training"].get("deterministic") else "" for run in trainings]
                reached = ", ".join(f"{rate:.1f}{mark}" for rate, mark in zip(rates, marks, strict=True))
                cells = [str(results[0]["episodes"]), reached, f"{max(rates) - min(rates):.1f}", str(differing)]
                rows.append([*named, str(trainings[0].seed), settings or "default", *cells])
    if not rows:
        return None
    caption = (
        "One seed trained several times, in the order of their start; (d) with --deterministic. Other tables count the "
        f"first training.{note}"
    )
    head = [*COLUMNS, "seed", "settings", "pairs", "success (%)", "largest difference (points)"]
    return Table.of(f"{group.slug}-repeats", caption, [*head, "pairs that end differently"], rows)


def read_paper(results: Path) -> dict[str, Any] | None:
    """The paper's table, where it is kept beside ours."""
    path = results / "paper.json"
    found: dict[str, Any] | None = read_json(path) if path.is_file() else None
    return found


def _seeds(configuration: Configuration, settings: str = "") -> str:
    return seeds_of(configuration.runs_with(settings))


def _counts(results: Iterable[Mapping[str, Any]]) -> str:
    """Episodes planned with each capacity, seed by seed."""
    seeds = [", ".join(f"{k}: {n}" for k, n in result["capacity_counts"].items() if n) for result in results]
    return seeds[0] if len(set(seeds)) == 1 else "; ".join(seeds)


def _range(configurations: Sequence[Configuration], name: str) -> str:
    found = [result.get(name) for each in configurations for result in each.evaluated()]
    rates = [rate for rate in found if rate is not None]
    if not rates:
        return NONE
    low, high = 100 * min(rates), 100 * max(rates)
    return f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"


def _paper_cell(configuration: Configuration, paper: Mapping[str, Any]) -> str:
    """The paper's success for this method on this task, with its mean capacity; nothing for what it does not have."""
    found = paper_values(configuration, paper)
    return NONE if found is None else f"{found[0]:.2f} ± {found[1]:.2f} at {found[2]:g}"


def paper_values(
    configuration: Configuration, paper: Mapping[str, Any], *, is_tuned: bool = False
) -> tuple[float, float, float] | None:
    """The paper's success (%), its standard error and the mean capacity; None for what it does not have.

    ALeWM must have the paper's settings, unless they were tuned here.
    """
    config = configuration.config
    task, width, method = config["task"], config["model"]["latent_dim"], config["objective"]["method"]
    for row in paper["rows"]:
        rate, sem, capacity = row[task]
        if row["backbone"] != backbone(config):
            continue
        is_lewm = method == "lewm" and row["method"] != "ALeWM" and capacity == width
        is_set = _is_the_papers(configuration) or (is_tuned and method == "alewm")
        is_alewm = row["method"] == "ALeWM" and row["d_max"] == width and is_set
        if is_lewm or is_alewm:
            return rate, sem, capacity
    return None


def _is_the_papers(configuration: Configuration) -> bool:
    config = configuration.config
    selected = SELECTED.get((config["task"], config["model"]["latent_dim"]))
    own = (
        config["objective"]["regularizer_weight"],
        config["training"]["optim"]["selector_multiplier"],
        config["model"]["prior_degree"],
    )
    return own == selected and method_of(configuration) == TITLES["alewm"]


def path_table(scale: RunGroup, note: str) -> Table | None:
    """What q and prediction did; None where no run has metrics."""
    shown = scale.only(lambda run: "prediction" in run.run.scalars())
    rows: list[Row] = []
    for named, each in with_columns(shown):
        dynamics = [run.dynamics() for run in each.runs if run.learns_q]
        losses = [run.run.scalars()["prediction"] for run in each.runs]
        rows.append([*named, each.seeds, *path_cells(dynamics, losses)])
    caption = f"On the way: {PATH_LEGEND}.{note}"
    return Table.of(f"{scale.slug}-path", caption, [*COLUMNS, "seeds", *PATH_HEAD], rows) if rows else None


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


def learned_table(scale: RunGroup, note: str) -> Table | None:
    """What training ended with; None where no run has validated and looked at its latents."""
    shown = scale.only(lambda run: _ended(run).keys() >= _NEEDED and len(run.latent) > 0)
    rows: list[Row] = []
    for named, each in with_columns(shown):
        entropy, rank, misfit = (
            Spread.of([measure(run) for run in each.runs]) for measure in (_entropy, _rank, _misfit)
        )
        errors = [_shown([measure(run) for run in each.runs]) for measure in (_error, _masked_error)]
        q = [entropy.shown(), _largest(each.runs)] if len(_q(each.runs[0])) > 1 else [NONE, NONE]
        rows.append([*named, each.seeds, *errors, *q, rank.shown(1), misfit.shown(3)])
    head = [*COLUMNS, "seeds", "error / variance", "error / masked variance"]
    head += ["entropy of q", "largest q", "rank", "variance off by"]
    return Table.of(f"{scale.slug}-learned", _LEARNED + note, head, rows) if rows else None


def probes_table(scale: RunGroup, note: str) -> Table | None:
    """What each prefix says of the true state; None where nobody probed."""
    shown = scale.only(lambda run: "probes" in run.measurements)
    found = [[{probe: _probed(run, probe) for probe in PROBES} for run in each.runs] for each in shown]
    ks = sorted({k for seeds in found for seed in seeds for probed in seed.values() for k in probed})
    common = _common([probed for seeds in found for seed in seeds for probed in seed.values()])
    rows: list[Row] = []
    for (named, each), seeds in zip(with_columns(shown), found, strict=True):
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
