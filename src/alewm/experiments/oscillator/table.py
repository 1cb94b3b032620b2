"""The study's numbers as a Markdown table, means and spreads over seeds."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

from alewm.capacity.prior import distance_from_survival
from alewm.experiments.oscillator.config import TRUE_FACTORS
from alewm.experiments.oscillator.study import OUR_ALEWM, PAPER_ALEWM

Record = dict[str, Any]

_COLUMNS = "method, λ, α, s_q, epochs, seeds, R² at 4, R² at d, effective rank, masked-variance error, seconds per run"


def title_of(record: Record) -> str:
    """What a record is called in tables and legends: the setting it is nearest to, and what no column says."""
    if record["method"] == "lewm":
        return f"LeWM d={record['latent_dim']}"
    if record["method"] != "alewm":
        return str(record["method"])
    config = record["config"]
    known = {"ours": asdict(OUR_ALEWM), "paper's way": asdict(PAPER_ALEWM)}
    name, base = min(known.items(), key=lambda item: sum(config[field] != value for field, value in item[1].items()))
    notes = {
        "selector frozen": config["control"] == "prior-frozen",
        "exact marginalisation": config["control"] == "marginal",
        f"delay {config['selector_delay']:g}": config["selector_delay"] != base["selector_delay"],
        f"KL {config['kl_weight']:g}": config["kl_weight"] != base["kl_weight"],
    }
    return ", ".join(["ALeWM", name, *(note for note, is_told in notes.items() if is_told)])


def by_setting(records: Sequence[Record]) -> list[list[Record]]:
    """Records that differ in nothing but their seed, together, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        setting = {name: value for name, value in record["config"].items() if name != "seed"}
        groups.setdefault(tuple(sorted(setting.items())), []).append(record)
    return list(groups.values())


def markdown_table(records: Sequence[Record]) -> str:
    """One row per setting; ± is the sample standard deviation over seeds."""
    columns = _COLUMNS.split(", ")
    lines = [_row(columns), _row(["---"] * len(columns))]
    for group in by_setting(records):
        first = group[0]
        cells = [
            title_of(first),
            f"{first['lambda']:g}",
            _or_dash(first["alpha"]),
            _or_dash(first["selector_rate"]),
            str(first["config"]["epochs"]),
            str(len(group)),
            _spread([record["r2_by_prefix"][min(TRUE_FACTORS, first["latent_dim"]) - 1] for record in group], 3),
            _spread([record["r2_by_prefix"][-1] for record in group], 3),
            _spread([record["effective_rank"] for record in group], 2),
            "–" if first["method"] == "lewm" else _spread([_variance_error(record) for record in group], 3),
            f"{fmean(record['seconds'] for record in group):.0f}",
        ]
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _variance_error(record: Record) -> float:
    return distance_from_survival(record["masked_variance"], record["prior_survival"])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _spread(values: Sequence[float], digits: int) -> str:
    mean = f"{fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {stdev(values):.{digits}f}"


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
