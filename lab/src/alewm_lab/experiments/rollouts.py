"""Matched episodes on which one method succeeds and the other fails, drawn by a fixed seed, both ways round."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from alewm.envs.registry import get_task
from alewm.errors import InputError
from alewm.evaluation.animations import ACTIONS, as_gif, film
from alewm.evaluation.closed_loop import ClosedLoop
from alewm.evaluation.held_out import Trained
from alewm.evaluation.settings import EvaluationSettings
from alewm.evaluation.success import EpisodeRecord
from alewm.runs.folder import load_tensors
from alewm.shapes import Tensor, UInt8
from alewm.sweeps.library import EvaluationWork, TrainingRun
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Theme
from alewm_lab.experiments.experiment import Animation, Experiment, ExperimentFigure, Outcome, Recipe, Results
from alewm_lab.experiments.main_table import METHODS, blocks_of, contest_of
from alewm_lab.experiments.request import TASK_TITLES, Request

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


def build(request: Request) -> Experiment:
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
        return _outcome(request, shown(results), results, test)

    return Experiment("rollouts", request, contest.runs, outcome, contest.validations, tests, 2 * len(tasks))


def _outcome(
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
    work = EvaluationWork(run, test)
    actions = _actions(work.folder(results.library), work.command(results.library))
    records = results.records(run, test)
    steps = torch.tensor([record.steps for record in records])
    success = torch.tensor([record.success for record in records])
    outcome = ClosedLoop(success, success, steps, torch.zeros(len(records), 1), actions)
    with Trained.open(results.library.folder(run), results.library.data_path(run.task), torch.device("cpu")) as trained:
        pairs = trained.test_pairs()
    films = film(get_task(run.task).make_vector_env(len(indices)), pairs, outcome, indices)
    return [Strip(method, records[i], *each) for i, each in zip(indices, films, strict=True)]


def _actions(folder: Path, command: str) -> Tensor:
    path = folder / ACTIONS
    if not path.is_file():
        raise InputError(
            f"{folder} was evaluated before executed actions were kept, so its episodes cannot be replayed. Plan "
            f"them again: {command}"
        )
    return load_tensors(path, f"plan the episodes again: {command}")[0]["actions"]


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


RECIPE = Recipe(
    "rollouts",
    "matched episodes on which ALeWM and best-width LeWM disagree, both ways round",
    build,
    compares_configurations=True,
    chooses_lewm_width=True,
)
