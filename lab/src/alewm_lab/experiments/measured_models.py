"""What is measured on trained models: which capacity a Reacher episode gets, and the true state in every prefix."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alewm.evaluation.closed_loop import GoalPairs
from alewm.evaluation.held_out import Trained
from alewm.evaluation.probes import PROBES, measure
from alewm.evaluation.statistics import Spread
from alewm.evaluation.success import EpisodeRecord
from alewm.sweeps.library import EvaluationWork, TrainingWork, Work
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Theme
from alewm_lab.experiments.experiment import Experiment, ExperimentFigure, MeasurementWork, Outcome, Recipe, Results
from alewm_lab.experiments.panels import capacity_axis
from alewm_lab.experiments.request import TASK_TITLES, Request


@dataclass(frozen=True)
class Allocation:
    """One model's episodes."""

    seed: int
    records: tuple[EpisodeRecord, ...]
    pixels: tuple[float, ...]
    """Start-goal displacement of what moves, in pixels of the native picture."""
    features: tuple[float, ...]
    """Euclidean distance of the start's and the goal's CLS tokens."""
    pair: tuple[int, int]
    """The two capacities whose probabilities are compared: those chosen most often."""
    log_ratios: tuple[float, ...]
    """log q(larger) - log q(smaller)."""


def build_reacher_capacity(request: Request) -> Experiment:
    """The models of one width, their test episodes, and the distances of each."""
    request.refuse_tiny("reacher-capacity is about Reacher")
    (width,) = request.widths(192)
    (task,) = request.tasks("reacher")
    runs = request.over_seeds(request.alewm, task, width)
    test = request.scale.evaluation()
    measured = {
        run: MeasurementWork(run, "distances", measure_allocation, made_by=request.command("reacher-capacity"))
        for run in runs
    }

    def outcome(results: Results) -> Outcome:
        allocations = [
            _allocation(run.seed, results.records(run, test), results.measured(measured[run]), support)
            for run, support in ((run, run.config.model.capacities) for run in runs)
        ]
        rows: list[Row] = []
        for run, each in zip(runs, allocations, strict=True):
            commands = results.commands([run], test)
            for k in sorted({record.capacity for record in each.records}):
                chosen = [i for i, record in enumerate(each.records) if record.capacity == k]
                missed = [i for i in chosen if not each.records[i].success]
                reached = [i for i in chosen if each.records[i].success]
                cells = [
                    str(len(chosen)),
                    _mean(each.pixels, chosen),
                    _mean(each.pixels, reached),
                    _mean(each.pixels, missed),
                    _mean(each.features, chosen),
                    f"{len(missed)}",
                ]
                rows.append([str(each.seed), str(k), *(Cell(text, commands=commands) for text in cells)])
        head = ["seed", "K", "episodes", "pixels", "pixels, reached", "pixels, missed", "CLS distance", "missed"]
        text = "Test episodes by chosen capacity: mean start-goal displacement in pixels and in CLS space."
        table = Table.of("reacher-capacity", request.caption(text), head, rows)
        caption = request.caption(
            "Left: start-goal displacement by chosen capacity; bars are means, counts in parentheses. Right: log ratio "
            "of the probabilities of the two capacities chosen most often, against the distance of the CLS tokens. "
            "Crosses are episodes that failed."
        )
        drawing = ExperimentFigure("reacher-capacity", caption, _panels(allocations), results.commands(runs, test))
        correlations = tuple(
            f"Seed {each.seed}: correlation of log q({each.pair[1]})/q({each.pair[0]}) with CLS distance "
            f"{_correlation(each.features, each.log_ratios)}, with displacement in pixels "
            f"{_correlation(each.pixels, each.log_ratios)}."
            for each in allocations
        )
        return Outcome((table,), (drawing,), findings=correlations)

    works: list[Work] = [EvaluationWork(run, test, num_animations=request.scale.num_animations) for run in runs]
    works += list(measured.values())
    return Experiment("reacher-capacity", request, runs, outcome, tuple(works))


def measure_allocation(folder: Path, data: Path, device: torch.device, options: Mapping[str, Any]) -> dict[str, Any]:
    """Distances between start and goal of every test pair, as the model sees them and in pixels."""
    with Trained.open(folder, data, device) as trained:
        pairs = trained.test_pairs()
        envs = trained.task.make_vector_env(len(pairs), image_size=trained.model.config.encoder.image_size)
        envs.reset_to(pairs.start_rows, pairs.goal_rows)
        frames = torch.stack([envs.render().cpu(), envs.render_goal().cpu()], 1)
        with torch.no_grad():
            parts = [trained.model.encode(part.to(device)).features.cpu() for part in torch.split(frames, 32)]
        features = torch.cat(parts).float()
        return {
            "episodes": list(pairs.episodes),
            "features": (features[:, 0] - features[:, 1]).norm(dim=-1).tolist(),
            "pixels": _displacement(trained.task.name, pairs).tolist(),
        }


def _displacement(task: str, pairs: GoalPairs) -> np.ndarray:
    """How far what moves is from its goal, in pixels: Reacher's finger, Two-Room's dot."""
    if task == "two-room":
        start, goal = (np.asarray(rows["proprio"], dtype=np.float64) for rows in (pairs.start_rows, pairs.goal_rows))
        scale = 1.0
    else:
        from alewm.envs import reacher

        sides = (pairs.start_rows["qpos"], pairs.goal_rows["qpos"])
        start, goal = (np.stack([reacher.finger_position(np.asarray(qpos)) for qpos in side]) for side in sides)
        scale = pixels_per_metre()
    moved: np.ndarray = scale * np.linalg.norm(start - goal, axis=-1)
    return moved


def _allocation(
    seed: int, records: list[EpisodeRecord], measured: Mapping[str, Any], support: tuple[int, ...]
) -> Allocation:
    place = {episode: index for index, episode in enumerate(measured["episodes"])}
    order = [place[record.episode] for record in records]
    pair = _compared(records, support)
    low, high = (support.index(k) for k in pair)
    tiny = 1e-30  # a probability may round to zero
    return Allocation(
        seed,
        tuple(records),
        tuple(measured["pixels"][i] for i in order),
        tuple(measured["features"][i] for i in order),
        pair,
        tuple(math.log(max(r.q[high], tiny)) - math.log(max(r.q[low], tiny)) for r in records),
    )


def _compared(records: list[EpisodeRecord], support: tuple[int, ...]) -> tuple[int, int]:
    """The two capacities chosen most often; where only one is, the likelier of its neighbours beside it."""
    mean = [fmean(record.q[c] for record in records) for c in range(len(support))]
    counts = [sum(record.capacity == k for record in records) for k in support]
    first, second = sorted(range(len(support)), key=lambda c: (counts[c], mean[c]), reverse=True)[:2]
    low, high = sorted((support[first], support[second]))
    return low, high


def _mean(values: tuple[float, ...], chosen: list[int]) -> str:
    return f"{fmean(values[i] for i in chosen):.3g}" if chosen else "–"


def _correlation(x: tuple[float, ...], y: tuple[float, ...]) -> str:
    if len(x) < 3 or min(np.std(x), np.std(y)) == 0:
        return "undefined"
    return f"{np.corrcoef(x, y)[0, 1]:+.2f}"


def _panels(allocations: list[Allocation]) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(6.4, 2.5 * len(allocations)), layout="constrained")
        panels = figure.subplots(len(allocations), 2, squeeze=False)
        for (left, right), each in zip(panels, allocations, strict=True):
            ks = sorted({record.capacity for record in each.records})
            for position, k in enumerate(ks):
                chosen = [i for i, record in enumerate(each.records) if record.capacity == k]
                _scatter(left, theme, each, chosen, position, [position + _jitter(i) for i in chosen], each.pixels)
                mean = fmean(each.pixels[i] for i in chosen)
                left.plot([position - 0.3, position + 0.3], [mean, mean], color=theme.text, linewidth=2)
                _scatter(right, theme, each, chosen, position, [each.features[i] for i in chosen], each.log_ratios)
            labels = [f"K = {k} ({sum(r.capacity == k for r in each.records)})" for k in ks]
            left.set_xticks(range(len(ks)), labels)
            left.set(title=f"seed {each.seed}", ylabel="displacement (pixels)", xlim=(-0.6, len(ks) - 0.4))
            left.grid(axis="x", visible=False)
            low, high = each.pair
            right.set(xlabel="CLS distance, start to goal", ylabel=f"log q({high}) / q({low})")
        return figure

    return draw


def _scatter(
    axes: Axes, theme: Theme, each: Allocation, chosen: list[int], index: int, x: list[float], y: tuple[float, ...]
) -> None:
    for is_success, marker in ((True, "so^Dv"[index % 5]), (False, "x")):
        kept = [(a, y[i]) for a, i in zip(x, chosen, strict=True) if each.records[i].success == is_success]
        color = theme.color((0, 3, 2, 4, 5)[index % 5]) if is_success else theme.color(1)
        if kept:
            axes.plot(*zip(*kept, strict=True), marker, color=color, ms=3.5, alpha=0.75)


def _jitter(i: int) -> float:
    """Sideways, so that points of one capacity do not cover each other; the same every time."""
    return 0.44 * ((i * 0.618034) % 1.0 - 0.5)


def pixels_per_metre() -> float:
    """Pixels of the native picture that a metre takes at the height of the finger."""
    from alewm.envs import reacher

    compiled = reacher.model()
    height = compiled.camera(reacher.CAMERA).pos[2] - compiled.body("finger").pos[2] - compiled.body("arm").pos[2]
    seen: float = 2 * height * np.tan(np.deg2rad(float(compiled.camera(reacher.CAMERA).fovy[0])) / 2)
    return float(reacher.IMAGE_SIZE / seen)


REACHER_CAPACITY = Recipe(
    "reacher-capacity",
    "chosen capacity against the distance from start to goal, failures marked",
    build_reacher_capacity,
)


Curves = dict[tuple[str, str, str], dict[int, Spread]]
"""R² by capacity, for each task, method and probe."""


def build_probes(request: Request) -> Experiment:
    """ALeWM and LeWM of one width; probes fitted on training frames, scored on frames of test episodes."""
    (width,) = request.widths(192)
    groups = request.both_methods(TASK_TITLES, width)
    runs = tuple(run for group in groups.values() for run in group)
    ks = request.alewm(runs[0].task, width, request.seeds[0]).config.model.capacities
    options = (
        ("capacities", ks),
        ("num_train", 400 if request.is_smoke else 20_000),
        ("num_test", 100 if request.is_smoke else 5_000),
        ("num_steps", 20 if request.is_smoke else 3_000),
    )
    measured = {run: MeasurementWork(run, "probes", measure, options, request.command("probes")) for run in runs}

    def outcome(results: Results) -> Outcome:
        curves: Curves = {}
        rows: list[Row] = []
        for (task, method), group in groups.items():
            found = [results.measured(measured[run]) for run in group]
            commands = tuple(w.command(results.library) for run in group for w in (TrainingWork(run), measured[run]))
            for probe in PROBES:
                spread = {k: Spread.of([each[probe][str(k)]["mean"] for each in found]) for k in ks}
                curves[task, method, probe] = spread
                cells = [Cell(spread[k].shown(digits=3), commands=commands) for k in ks]
                rows.append([TASK_TITLES[task], method, probe, *cells])
        head = ["task", "model", "probe", *(f"k = {k}" for k in ks)]
        text = (
            "R² (mean over what one frame shows of the state, ± SEM over seeds) from the first k coordinates of "
            "the latent of one frame; probes are fitted per prefix on training frames and scored on frames of test "
            "episodes."
        )
        table = Table.of("probes", request.caption(text), head, rows)
        commands = tuple(TrainingWork(run).command(results.library) for run in runs)
        return Outcome((table,), (ExperimentFigure("probes", request.caption(text), _probe_panels(curves), commands),))

    works = list(measured.values())
    return Experiment("probes", request, runs, outcome, tuple(works))


def _probe_panels(curves: Curves) -> Draw:
    tasks = list(dict.fromkeys(task for task, _, _ in curves))

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(2.9 * len(tasks) + 0.6, 2.8), layout="constrained")
        panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
        for axes, task in zip(panels, tasks, strict=True):
            for (where, method, probe), spread in curves.items():
                if where != task:
                    continue
                color = theme.color(0 if method == "LeWM" else 1)
                style, ks = "-" if probe == "linear" else "--", list(spread)
                means, errors = [s.mean for s in spread.values()], [s.sem or 0.0 for s in spread.values()]
                axes.errorbar(
                    ks, means, errors, color=color, linestyle=style, marker="o", ms=3, label=f"{method}, {probe}"
                )
            capacity_axis(axes, ks)
            axes.set(title=TASK_TITLES[task], xlabel="prefix k")
        panels[0].set_ylabel("R² of the true state")
        panels[-1].legend(fontsize=7)
        return figure

    return draw


PROBES_RECIPE = Recipe("probes", "linear and network recovery of the true state from each prefix", build_probes)
