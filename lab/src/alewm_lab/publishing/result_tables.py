"""Published runs as tables: success beside its floors and the paper's, capacities, settings."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from alewm.evaluation.statistics import Spread
from alewm.files import natural_order, read_json
from alewm.tables import NONE, Cell, Row, Table
from alewm.training.presets import SELECTED
from alewm_lab.publishing.configuration_names import COLUMNS, TITLES, backbone, method_of, named_columns
from alewm_lab.publishing.published import Configuration, PublishedRun, Scale

_IMPOSED = re.compile(r"capacity-(\d+)")
"""Names of evaluations with a capacity that was imposed."""


def success_cell(configuration: Configuration, name: str = "success_rate", settings: str = "") -> Cell:
    """Success in percent: mean and SEM over seeds, or, for one seed, the interval of its pairs and the words."""
    results = configuration.evaluated(settings)
    commands = tuple(command for run in configuration.runs for command in run.commands)
    if not results or results[0][name] is None:
        return Cell(NONE)
    spread = configuration.spread(name, settings)
    if spread.sem is not None:
        return Cell(spread.percent(), commands=commands)
    low, high = (100 * bound for bound in results[0][name.replace("success_rate", "interval")])
    return Cell(f"{spread.percent(1)} ({low:.1f} to {high:.1f}), one seed", commands=commands)


def main_table(scale: Scale, paper: Mapping[str, Any] | None, caption: str) -> Table:
    """Every configuration evaluated with default settings, the floors below them; the paper's figures if given."""
    shown = [each for each in scale.configurations if each.evaluated()]
    rows: list[Row] = []
    for named, each in zip(named_columns(shown), shown, strict=True):
        rows.append(
            [
                *named,
                _seeds(each),
                success_cell(each),
                success_cell(each, "success_rate_nontrivial"),
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


def sweep_table(scale: Scale, caption: str) -> Table | None:
    """Success at every fixed capacity; None where no run was evaluated so."""
    shown = with_fixed_capacities(scale)
    if not shown:
        return None
    ks = sorted({k for each in shown for k in fixed_capacities(each)})
    rows: list[Row] = []
    for named, each in zip(named_columns(shown), shown, strict=True):
        cells = [success_cell(each, settings=f"capacity-{k}") for k in ks]
        chosen = f"{each.spread('mean_capacity').shown()}" if each.evaluated() else NONE
        rows.append([*named, each.seeds, *cells, success_cell(each), chosen])
    head = (*COLUMNS, "seeds", *(f"k = {k}" for k in ks), "as chosen", "mean capacity")
    return Table.of(f"{scale.slug}-capacities", caption, head, rows)


def with_fixed_capacities(scale: Scale) -> list[Configuration]:
    """Those runs on which some capacity was imposed: imposed and chosen capacities are compared on them."""
    return scale.only(lambda run: len(imposed_on(run)) > 0)


def imposed_on(run: PublishedRun) -> set[int]:
    """The capacities that were imposed on planning with it."""
    return {int(found[1]) for name in run.evaluations if (found := _IMPOSED.fullmatch(name))}


def fixed_capacities(configuration: Configuration) -> dict[int, Spread]:
    """Success by the capacity that was imposed on planning."""
    ks = sorted({k for run in configuration.runs for k in imposed_on(run)})
    return {k: configuration.spread("success_rate", f"capacity-{k}") for k in ks}


def settings_table(scale: Scale, caption: str) -> Table | None:
    """Success with other settings than the default ones, fixed capacities aside; None where there are none."""
    rows: list[Row] = []
    for named, each in zip(named_columns(scale.configurations), scale.configurations, strict=True):
        for settings in sorted(
            {settings for run in each.runs for settings in run.evaluations if settings}, key=natural_order
        ):
            if not _IMPOSED.fullmatch(settings):
                results = each.evaluated(settings)
                cells = [success_cell(each, settings=settings), success_cell(each, "success_rate_nontrivial", settings)]
                capacity = each.spread("mean_capacity", settings).shown()
                seeds, pairs = _seeds(each, settings), str(results[0]["episodes"])
                rows.append([settings, pairs, *named, seeds, *cells, capacity])
    if not rows:
        return None
    rows.sort(key=lambda row: str(row[0]))
    head = ["settings", "pairs", *COLUMNS, "seeds", "success (%)", "not solved at the start (%)"]
    return Table.of(f"{scale.slug}-settings", caption, [*head, "mean capacity"], rows)


def read_paper(results: Path) -> dict[str, Any] | None:
    """The paper's table, where it is kept beside ours."""
    path = results / "paper.json"
    found: dict[str, Any] | None = read_json(path) if path.is_file() else None
    return found


def _seeds(configuration: Configuration, settings: str = "") -> str:
    return ", ".join(str(run.seed) for run in configuration.runs if settings in run.evaluations)


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
    config = configuration.config
    task, width, method = config["task"], config["model"]["latent_dim"], config["objective"]["method"]
    for row in paper["rows"]:
        rate, sem, capacity = row[task]
        if row["backbone"] != backbone(config):
            continue
        is_lewm = method == "lewm" and row["method"] != "ALeWM" and capacity == width
        is_alewm = row["method"] == "ALeWM" and row["d_max"] == width and _is_the_papers(configuration)
        if is_lewm or is_alewm:
            return f"{rate:.2f} ± {sem:.2f} at {capacity:g}"
    return NONE


def _is_the_papers(configuration: Configuration) -> bool:
    config = configuration.config
    selected = SELECTED.get((config["task"], config["model"]["latent_dim"]))
    own = (
        config["objective"]["regularizer_weight"],
        config["training"]["optim"]["selector_multiplier"],
        config["model"]["prior_degree"],
    )
    return own == selected and method_of(configuration) == TITLES["alewm"]
