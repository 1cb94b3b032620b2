"""`alewm report`: one self-contained page for a run, or for several side by side."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from alewm.evaluation.evaluate_run import interval_in_words
from alewm.files import write_bytes
from alewm.report import figures, html
from alewm.report.gather import Run, flatten, read_runs, with_data_sets
from alewm.theme import Draw, Series, as_svg

MOST_FILMS = 12
"""Animations shown per run."""


def write_report(run_folders: Sequence[Path], out: Path) -> Path:
    """Write `out/index.html` and `out/figures/*.svg` from the run folders alone; the path of the page.

    The page holds its figures and animations itself. An existing page is replaced once the new one is complete.
    """
    runs = read_runs(with_data_sets(run_folders))
    shelf = _Shelf(out / "figures")
    content = [
        part
        for part in (
            _headline(runs),
            _success(runs, shelf),
            _capacities(runs, shelf),
            _open_loop(runs, shelf),
            _variance(runs, shelf),
            _curves(runs, shelf),
            _films(runs, shelf),
            _differences(runs),
            _details(runs),
        )
        if part
    ]
    shelf.write()
    return html.write_page(out, " · ".join(run.name for run in runs), _subtitle(runs), *content)


class _Shelf:
    """Figures of one report: embedded in the page and kept as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, bytes] = {}

    def figure(self, name: str, draw: Draw, caption: str, *, titled: bool = False) -> str:
        svg = as_svg(draw)
        self.files[f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.svg"] = svg
        return html.figure(svg, caption, titled=titled)

    def write(self) -> None:
        for name, content in self.files.items():
            write_bytes(self.folder / name, content)


def _subtitle(runs: Sequence[Run]) -> str:
    steps = [int(run.metrics[-1]["step"]) for run in runs if run.metrics]
    commands = {str(run.provenance["command"]) for run in runs if "command" in run.provenance}
    parts = [f"{len(runs)} runs" if len(runs) > 1 else str(runs[0].folder)]
    if steps:
        parts.append(f"{max(steps):,} update steps")
    if len(commands) == 1:
        parts.append(commands.pop())
    parts += dict.fromkeys(run.data_note for run in runs if run.data_note)
    return " · ".join(parts)


def _headline(runs: Sequence[Run]) -> str:
    if len(runs) > 1 or "success_rate" not in runs[0].result:
        return ""
    result = runs[0].result
    shown = [
        (f"success (95 % interval: {_interval(result)})", _percent(result["success_rate"])),
        ("success where not solved at the start", _percent(result.get("success_rate_nontrivial"))),
        ("uniform random, same pairs", _percent(result.get("random_success_rate"))),
        ("doing nothing, same pairs", _percent(result.get("zero_success_rate"))),
        ("recorded actions, same pairs", _percent(result.get("replay_success_rate"))),
        ("mean planning capacity", _number(result.get("mean_capacity"))),
        ("episodes", _number(result.get("episodes"))),
    ]
    return html.tiles([(label, value) for label, value in shown if value != "–"])


def _success(runs: Sequence[Run], shelf: _Shelf) -> str:
    evaluated = [run for run in runs if run.result.get("success_rate") is not None]
    if not evaluated:
        return html.section(
            "Success", html.paragraph("Not evaluated yet: alewm evaluate writes the result into the run folder.")
        )
    head = ("run", "success", "95 % interval", "not presolved", "random", "nothing", "presolved", "episodes", "seconds")
    rows = [
        (
            run.name,
            _percent(run.result["success_rate"]),
            _interval(run.result),
            *(
                _percent(run.result.get(key))
                for key in (
                    "success_rate_nontrivial",
                    "random_success_rate",
                    "zero_success_rate",
                    "presolved_share",
                )
            ),
            _number(run.result.get("episodes")),
            _number(run.result.get("seconds")),
        )
        for run in evaluated
    ]
    plots = [
        shelf.figure(
            "success", figures.success_rates(evaluated), "Success on the same held-out pairs, and what chance gives."
        )
    ]
    for index, run in enumerate(runs):
        if run.records:
            draw = figures.distance_over_time(run.records, run.name, index)
            caption = f"Distance to the goal, episode by episode: {run.name}."
            plots.append(shelf.figure(f"distance-{run.name}", draw, caption))
    return html.section("Success", html.table(head, rows), html.grid(plots))


def _capacities(runs: Sequence[Run], shelf: _Shelf) -> str:
    chosen = [run for run in runs if run.result.get("capacity_counts")]
    head = ("run", "mean capacity", "of width", "q shift", "q spread", "chosen (k: episodes)")
    rows = [
        (
            run.name,
            _number(run.result.get("mean_capacity")),
            _number((run.result.get("support") or [None])[-1]),
            _number(run.result.get("q_shift")),
            _number(run.result.get("q_spread")),
            ", ".join(f"{k}: {count}" for k, count in run.result["capacity_counts"].items() if count),
        )
        for run in chosen
    ]
    plots = []
    if chosen:
        caption = "Episodes planned with each capacity (bars) and the selector's mean probability (dots)."
        plots.append(shelf.figure("capacities", figures.chosen_capacities(chosen), caption))
    for run in runs:
        for group, curves in run.capacity_dynamics().items():
            if len(curves) == 1:
                continue  # nothing was chosen
            name = " · ".join(part for part in (run.name, group) if part)
            caption = f"Mean probability of each capacity while training: {name}."
            plots.append(shelf.figure(f"dynamics-{name}", figures.capacity_dynamics(curves, name), caption))
    if not plots:
        return ""
    note = "q shift: total-variation distance of the mean q from its prior. q spread: mean distance of q from its mean."
    return html.section("Capacity", html.table(head, rows) + html.paragraph(note) if rows else "", html.grid(plots))


def _open_loop(runs: Sequence[Run], shelf: _Shelf) -> str:
    plots = []
    for run in runs:
        if errors := run.open_loop_errors():
            caption = f"Error of rollouts on validation windows, distilled dynamics and own predictor: {run.name}."
            plots.append(shelf.figure(f"open-loop-{run.name}", figures.open_loop_errors(errors, run.name), caption))
    return html.section("Open-loop error", html.grid(plots)) if plots else ""


def _variance(runs: Sequence[Run], shelf: _Shelf) -> str:
    plots = []
    for index, run in enumerate(runs):
        variance, survival = run.latest("masked_variance"), run.latest("prior_survival")
        if isinstance(variance, list) and isinstance(survival, list):
            draw = figures.masked_variance(variance, survival, run.name, index)
            caption = f"Variance of each masked coordinate beside the prior's survival probability: {run.name}."
            plots.append(shelf.figure(f"variance-{run.name}", draw, caption))
    return html.section("Masked variance against survival", html.grid(plots)) if plots else ""


def _curves(runs: Sequence[Run], shelf: _Shelf) -> str:
    curves: dict[str, dict[int, Series]] = {}
    for index, run in enumerate(runs):
        for name, series in run.scalars().items():
            # q has a figure of its own; time that has passed is a line, and windows per second say more.
            if "q" not in name.split("/")[:-1] and name != "seconds":
                curves.setdefault(name, {})[index] = series
    # Losses first: they are what one looks for.
    ordered = sorted(curves, key=lambda name: ("loss" not in name, name))
    names = [run.name for run in runs]
    plots = [
        shelf.figure(
            f"metric-{name}", figures.metric_curves(curves[name], names, _words(name)), _words(name), titled=True
        )
        for name in ordered
    ]
    return html.section("Curves", html.grid(plots)) if plots else ""


def _films(runs: Sequence[Run], shelf: _Shelf) -> str:
    pieces = [
        html.film(path.read_bytes(), f"{run.name}: {_words(path.stem)} (episode left, goal right)")
        for run in runs
        for path in run.animations[:MOST_FILMS]
    ]
    return html.section("Rollouts", html.grid(pieces)) if pieces else ""


def _differences(runs: Sequence[Run]) -> str:
    if len(runs) < 2:
        return ""
    rows = list(_differing_fields(runs))
    body = html.table(("field", *(run.name for run in runs)), rows, words=True) if rows else ""
    return html.section("What differs", body or html.paragraph("The runs have the same configuration."))


def _differing_fields(runs: Sequence[Run]) -> Iterator[tuple[Any, ...]]:
    configs = [dict(flatten(run.config)) for run in runs]
    for name in dict.fromkeys(name for config in configs for name in config):
        values = [config.get(name, "–") for config in configs]
        if any(value != values[0] for value in values):
            yield (name, *values)


def _details(runs: Sequence[Run]) -> str:
    parts = []
    for run in runs:
        parts.append(html.folded(f"{run.name}: configuration", flatten(run.config)))
        if run.provenance:
            parts.append(html.folded(f"{run.name}: provenance", flatten(run.provenance)))
        if run.result:
            shown = [(k, v) for k, v in flatten(run.result) if not (isinstance(v, list) and len(v) > 16)]
            parts.append(html.folded(f"{run.name}: result", shown))
    return html.section("Configuration and provenance", *parts)


def _percent(rate: Any) -> str:
    return f"{100 * rate:.1f} %" if isinstance(rate, (int, float)) else "–"


def _interval(result: Mapping[str, Any]) -> str:
    return interval_in_words(result) if "interval" in result else ""


def _number(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3g}" if isinstance(value, float) else "–"


def _words(name: str) -> str:
    return name.replace("/", " · ").replace("_", " ").replace("-", " ")
