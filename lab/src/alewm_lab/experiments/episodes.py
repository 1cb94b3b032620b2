"""Experiments about single test episodes: where two methods disagree, and which capacity a Reacher episode gets.

Episodes that are shown are drawn by a fixed seed, both ways round.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alewm.errors import InputError
from alewm.evaluation.animations import ACTIONS, as_gif, replayed
from alewm.evaluation.closed_loop import GoalPairs
from alewm.evaluation.held_out import Trained
from alewm.evaluation.settings import EvaluationSettings
from alewm.evaluation.success import EpisodeRecord
from alewm.shapes import Tensor, UInt8
from alewm.sweeps.library import EvaluationWork, TrainingRun, Work
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Theme
from alewm_lab.experiments.experiment import (
    Animation,
    Experiment,
    ExperimentFigure,
    MeasurementWork,
    Outcome,
    Recipe,
    Results,
)
from alewm_lab.experiments.main_table import METHODS, blocks_of, contest_of
from alewm_lab.experiments.request import TASK_TITLES, Request
from alewm_lab.presentation import NONE

DRAW_SEED = 3072
NUM_SHOWN = 2
"""Episodes per task and kind of disagreement."""
NUM_BETWEEN = 4
"""Frames shown between the first and the last."""
LEWM, ALEWM = METHODS[0], METHODS[2]


@dataclass(frozen=True)
class Strip:
    """One method's episode: the frames shown, and all of them."""

    method: str
    record: EpisodeRecord
    frames: UInt8[Tensor, "frames Y X 3"]
    goal: UInt8[Tensor, "Y X 3"]

    @property
    def shown(self) -> list[Tensor]:
        """Start, four between, last, goal."""
        steps = np.linspace(0, len(self.frames) - 1, NUM_BETWEEN + 2).round().astype(int)
        return [*(self.frames[int(step)] for step in steps), self.goal]


def build_rollouts(request: Request) -> Experiment:
    """ALeWM and LeWM at its best width as in the main table; the first seed's episodes are compared."""
    (width,) = request.widths(192)
    tasks = request.tasks(*TASK_TITLES)
    contest = contest_of(request, [width], tasks)
    test = request.scale.evaluation()

    def shown(results: Results) -> dict[str, dict[str, TrainingRun]]:
        blocks = blocks_of(contest.chosen(results))
        return {task: {method: runs[method][0] for method in (LEWM, ALEWM)} for (_, task), runs in blocks.items()}

    def tests(results: Results) -> list[EvaluationWork]:
        runs = [run for methods in shown(results).values() for run in methods.values()]
        return [EvaluationWork(run, test, num_animations=request.scale.num_animations) for run in runs]

    def outcome(results: Results) -> Outcome:
        return _rollouts_outcome(request, shown(results), results, test)

    return Experiment("rollouts", request, contest.runs, outcome, contest.validations, tests, 2 * len(tasks))


def _rollouts_outcome(
    request: Request, chosen: dict[str, dict[str, TrainingRun]], results: Results, test: EvaluationSettings
) -> Outcome:
    rows: list[Row] = []
    drawings, films = [], []
    for task, runs in chosen.items():
        records = {method: results.records(run, test) for method, run in runs.items()}
        pairs = list(zip(records[ALEWM], records[LEWM], strict=True))
        kinds = {
            f"{ALEWM} reaches, LeWM does not": [i for i, (a, b) in enumerate(pairs) if a.success and not b.success],
            f"LeWM reaches, {ALEWM} does not": [i for i, (a, b) in enumerate(pairs) if b.success and not a.success],
        }
        both = sum(a.success and b.success for a, b in pairs)
        commands = results.commands(list(runs.values()), test)
        counts = [*map(len, kinds.values()), both, sum(not a.success and not b.success for a, b in pairs)]
        rows.append([TASK_TITLES[task], *(Cell(str(count), commands=commands) for count in counts)])
        for number, (kind, indices) in enumerate(kinds.items()):
            shown = draw_episodes(indices)
            if not shown:
                continue
            name = f"{task}-{'alewm' if number == 0 else 'lewm'}-reaches"
            strips = [_replay(results, runs[method], method, test, shown) for method in (LEWM, ALEWM)]
            matched = [strip for pair in zip(*strips, strict=True) for strip in pair]
            caption = request.caption(
                f"{TASK_TITLES[task]}: {kind} on {len(indices)} of {len(pairs)} test pairs; {len(shown)} drawn by seed "
                f"{DRAW_SEED}. First frame, four between, last frame, goal; LeWM above ALeWM."
            )
            drawings.append(ExperimentFigure(name, caption, _strips(matched), commands))
            for upper, lower in zip(*strips, strict=True):
                title = (
                    f"{TASK_TITLES[task]}, episode {upper.record.episode}: LeWM left, ALeWM middle, goal right. {kind}."
                )
                films.append(
                    Animation(f"{name}-{upper.record.episode:05d}", request.caption(title), _gif(upper, lower))
                )
    head = ["task", "only ALeWM reaches", "only LeWM reaches", "both", "neither"]
    text = f"Test pairs by which method reaches the goal, LeWM at its best width, models of seed {request.seeds[0]}."
    return Outcome((Table.of("disagreements", request.caption(text), head, rows),), tuple(drawings), tuple(films))


def draw_episodes(indices: Sequence[int]) -> list[int]:
    """At most two of `indices`, drawn by a fixed seed, in increasing order."""
    generator = np.random.default_rng(DRAW_SEED)
    return sorted(int(i) for i in generator.permutation(list(indices))[:NUM_SHOWN])


def _replay(
    results: Results, run: TrainingRun, method: str, test: EvaluationSettings, indices: Sequence[int]
) -> list[Strip]:
    """The episodes at `indices`, from the actions that were executed, at the task's native size."""
    work, library = EvaluationWork(run, test), results.library
    folder, records = work.folder(library), results.records(run, test)
    if not (folder / ACTIONS).is_file():
        raise InputError(
            f"{folder} was evaluated before executed actions were kept, so its episodes cannot be replayed. Plan "
            f"them again: {work.command(library)}"
        )
    films = replayed(folder, indices, data_path=library.data_path(run.task))
    return [Strip(method, records[i], *each) for i, each in zip(indices, films, strict=True)]


def _strips(strips: Sequence[Strip]) -> Draw:
    def draw(theme: Theme) -> Figure:
        columns = NUM_BETWEEN + 3
        figure = Figure(figsize=(1.05 * columns + 0.9, 1.12 * len(strips) + 0.3), layout="constrained")
        panels = figure.subplots(len(strips), columns, squeeze=False)
        for row, strip in zip(panels, strips, strict=True):
            for axes, frame in zip(row, strip.shown, strict=True):
                axes.imshow(frame.numpy(), interpolation="nearest")
                axes.set(xticks=[], yticks=[])
                axes.grid(visible=False)
            ended = "reached" if strip.record.success else "missed"
            name = strip.method.split()[0]
            row[0].set_ylabel(f"{name}, {ended}\nk = {strip.record.capacity}", fontsize=7)
        for axes, title in zip(panels[0], ("start", *[""] * NUM_BETWEEN, "last", "goal"), strict=True):
            axes.set_title(title, fontsize=8)
        return figure

    return draw


def _gif(left: Strip, right: Strip) -> bytes:
    """Both methods and their goal; the one that ends first waits for the other."""
    sides = [
        [strip.frames[min(step, len(strip.frames) - 1)] for strip in (left, right)]
        for step in range(max(len(left.frames), len(right.frames)))
    ]
    return as_gif([[*each, left.goal] for each in sides])


ROLLOUTS = Recipe(
    "rollouts",
    "matched episodes on which ALeWM and best-width LeWM disagree, both ways round",
    build_rollouts,
    compares_configurations=True,
    chooses_lewm_width=True,
)


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
        drawing = ExperimentFigure(
            "reacher-capacity", caption, _allocation_panels(allocations), results.commands(runs, test)
        )
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
    return f"{fmean(values[i] for i in chosen):.3g}" if chosen else NONE


def _correlation(x: tuple[float, ...], y: tuple[float, ...]) -> str:
    if len(x) < 3 or min(np.std(x), np.std(y)) == 0:
        return "undefined"
    return f"{np.corrcoef(x, y)[0, 1]:+.2f}"


def _allocation_panels(allocations: list[Allocation]) -> Draw:
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
