"""The study as a Markdown table of means and spreads over seeds, and as the paper's four panels and one of q."""

from collections.abc import Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alewm.files import write_bytes
from alewm_lab.oscillator.measures import Record, distance_from_survival
from alewm_lab.oscillator.study import MAX_WIDTH, OUR_ALEWM, PAPER_ALEWM, TRUE_FACTORS
from alewm_lab.presentation import NONE

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
            NONE if first["method"] == "lewm" else _spread([_variance_error(record) for record in group], 3),
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
    return NONE if value is None else f"{value:g}"


_ALEWM = "#c2410c"
_LEWM = ("#1e3a8a", "#3b82f6", "#93c5fd", "#64748b", "#94a3b8", "#a5b4fc", "#cbd5e1")
_FACTORS = ("$p^1$", "$v^1$", "$p^2$", "$v^2$")
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "svg.hashsalt": "alewm",
}


def draw(records: Sequence[Record], folder: Path) -> None:
    """Writes `figure.svg` and `figure.png`; curves are means over seeds, the scatter is the first seed."""
    groups = by_setting(records)
    lewm = [group for group in groups if group[0]["method"] == "lewm"]
    alewm = next((group for group in groups if title_of(group[0]) == "ALeWM, ours"), None)
    alewm = alewm or next((group for group in groups if group[0]["method"] == "alewm"), None)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(15, 3.1), layout="constrained")
        recovery, spectrum, alignment, variance, dynamics = figure.subplots(1, 5)
        _recovery(recovery, lewm, alewm)
        _spectra(spectrum, lewm, alewm)
        if alewm is not None:
            _alignment(alignment, alewm[0])
            _variance(variance, alewm)
            _dynamics(dynamics, alewm)
        for kind, metadata in (("svg", {"Date": None}), ("png", None)):
            drawn = BytesIO()
            figure.savefig(drawn, format=kind, dpi=160, metadata=metadata)
            write_bytes(folder / f"figure.{kind}", drawn.getvalue())


def _mean(group: Sequence[Record], name: str) -> np.ndarray:
    values: np.ndarray = np.asarray([record[name] for record in group]).mean(0)
    return values


def _recovery(axes: Axes, lewm: Sequence[Sequence[Record]], alewm: Sequence[Record] | None) -> None:
    axes.set(title="(a) Linear state recovery", xlabel="prefix size k", ylabel="R²", xlim=(0.8, MAX_WIDTH + 0.2))
    for color, group in zip(_LEWM, lewm, strict=False):
        curve = _mean(group, "r2_by_prefix")
        axes.plot(range(1, len(curve) + 1), curve, ".-", color=color, label=title_of(group[0]))
        # Beyond its width a narrow model has nothing to add: the dotted line is a visual reference only.
        axes.plot([len(curve), MAX_WIDTH], [curve[-1]] * 2, ":", color=color)
    if alewm is not None:
        for record in alewm:
            axes.plot(range(1, MAX_WIDTH + 1), record["r2_by_prefix"], color=_ALEWM, alpha=0.25, linewidth=1)
        axes.plot(range(1, MAX_WIDTH + 1), _mean(alewm, "r2_by_prefix"), "o-", color=_ALEWM, label=title_of(alewm[0]))
    axes.axvline(TRUE_FACTORS, color="0.6", linestyle="--", linewidth=0.8)
    axes.legend(loc="lower right")


def _spectra(axes: Axes, lewm: Sequence[Sequence[Record]], alewm: Sequence[Record] | None) -> None:
    axes.set(title="(b) Covariance spectrum", xlabel="eigenvalue index", ylabel="share of variance", yscale="log")
    for color, group in [*zip(_LEWM, lewm, strict=False), *([(_ALEWM, alewm)] if alewm else [])]:
        share = np.mean([np.array(record["spectrum"]) / np.sum(record["spectrum"]) for record in group], axis=0)
        rank = fmean(record["effective_rank"] for record in group)
        axes.plot(
            range(1, len(share) + 1),
            share,
            "o-",
            markersize=3,
            color=color,
            label=f"{title_of(group[0])}: rank {rank:.1f}",
        )
    axes.legend(loc="lower left")


def _alignment(axes: Axes, record: Record) -> None:
    aligned, state = np.array(record["procrustes"]["aligned"]), np.array(record["procrustes"]["state"])
    axes.set(
        title="(c) Procrustes alignment", xlabel="true state (whitened)", ylabel="first 4 coordinates", aspect="equal"
    )
    for factor, name in enumerate(_FACTORS):
        axes.plot(state[:, factor], aligned[:, factor], ".", markersize=2, alpha=0.5, label=name)
    limit = float(np.abs(state).max())
    axes.plot([-limit, limit], [-limit, limit], color="0.4", linewidth=0.8)
    axes.legend(loc="upper left", markerscale=4, title=f"R² = {record['procrustes']['r2']:.3f}")


def _variance(axes: Axes, group: Sequence[Record]) -> None:
    axes.set(title="(d) Masked variance", xlabel="coordinate j", ylabel="variance")
    coordinates = np.arange(1, MAX_WIDTH + 1)
    axes.bar(coordinates, _mean(group, "masked_variance"), color=_ALEWM, alpha=0.65, label="masked latent")
    axes.plot(coordinates, group[0]["prior_survival"], "k_", markersize=14, label="prior survival")
    axes.set_ylim(0, 1.35)
    axes.legend(loc="upper right")


def _dynamics(axes: Axes, group: Sequence[Record]) -> None:
    axes.set(title="(e) Mean q while training", xlabel="epoch", ylabel="probability")
    q = _mean(group, "q_by_epoch")
    colors = mpl.colormaps["viridis"](np.linspace(0, 0.95, q.shape[1]))
    for capacity, (curve, color) in enumerate(zip(q.T, colors, strict=True), start=1):
        axes.plot(range(1, len(curve) + 1), curve, color=color, label=f"k = {capacity}")
    axes.set_ylim(0, 1)
    axes.legend(ncols=2, loc="upper right")
