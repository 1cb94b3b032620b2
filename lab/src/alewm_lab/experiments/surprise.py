"""Is the impossible surprising? Prediction error at frames that no action leads to, against ordinary ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from alewm.data.windows import WindowShape
from alewm.evaluation.held_out import SAMPLE_SEED, Trained
from alewm.evaluation.statistics import Spread
from alewm.shapes import Float, Tensor
from alewm.sweeps.library import TrainingWork
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Theme
from alewm_lab.experiments.experiment import Experiment, ExperimentFigure, MeasurementWork, Outcome, Recipe, Results
from alewm_lab.experiments.figures import capacity_axis
from alewm_lab.experiments.request import TASK_TITLES, Request

JUMPS = ("frozen", "same episode", "other episode")
"""What takes the place of a window's last frame: the frame before it; a frame of the same episode ten or more steps
from the true one; a frame of another episode."""
LEAST_JUMP = 10
Curves = dict[tuple[str, str, str], dict[int, Spread]]


def build(request: Request) -> Experiment:
    """ALeWM and LeWM of one width, on windows of test episodes."""
    (width,) = request.widths(192)
    groups = request.both_methods(TASK_TITLES, width)
    runs = tuple(run for group in groups.values() for run in group)
    options = (("num_windows", 100 if request.is_smoke else 2_000),)
    measured = {run: MeasurementWork(run, "surprise", measure, options, request.command("surprise")) for run in runs}

    def outcome(results: Results) -> Outcome:
        rows: list[Row] = []
        curves: Curves = {}
        for (task, method), group in groups.items():
            found = [results.measured(measured[run]) for run in group]
            commands = tuple(w.command(results.library) for run in group for w in (TrainingWork(run), measured[run]))
            ks = group[0].config.model.capacities
            for k in ks:
                for jump in JUMPS:
                    spread = Spread.of([each[str(k)][jump]["auroc"] for each in found])
                    curves.setdefault((task, method, jump), {})[k] = spread
            cells: list[Cell | str] = []
            for jump in JUMPS:
                spreads = curves[task, method, jump]
                ratio = Spread.of([each[str(ks[-1])][jump]["ratio"] for each in found])
                cells.append(Cell(spreads[ks[-1]].shown(digits=3), commands=commands))
                cells.append(Cell(ratio.shown(digits=1), commands=commands))
            rows.append([TASK_TITLES[task], method, *cells])
        head = ["task", "model"]
        for jump in JUMPS:
            head += [f"{jump}: AUROC", f"{jump}: error ratio"]
        text = (
            "How well the one-step prediction error tells a last frame that was put in place of the true one "
            "(frozen: the frame before it; same episode: a frame ten or more steps away; other episode) from the "
            "true one: area under the ROC curve (0.5 is chance) and ratio of median errors, at full width, mean ± "
            "SEM over seeds."
        )
        table = Table.of("surprise", request.caption(text), head, rows)
        caption = request.caption("Area under the ROC curve against the prefix that is predicted from and compared.")
        commands = tuple(TrainingWork(run).command(results.library) for run in runs)
        return Outcome((table,), (ExperimentFigure("surprise", caption, _panels(curves), commands),))

    works = list(measured.values())
    return Experiment("surprise", request, runs, outcome, tuple(works))


@torch.no_grad()
def measure(folder: Path, data: Path, device: torch.device, options: Mapping[str, Any]) -> dict[str, Any]:
    """AUROC and ratio of medians of the prediction error for every capacity and kind of jump."""
    with Trained.open(folder, data, device) as trained:
        model, windows = trained.model, trained.windows("test", options["num_windows"])
        generator = np.random.default_rng(SAMPLE_SEED)
        true_rows = WindowShape().frame_rows(windows.starts)[:, -1]
        swapped = {
            "same episode": _rows_elsewhere(trained, windows.episodes, true_rows, generator),
            "other episode": _rows_of_others(windows.episodes, true_rows, generator),
        }
        z = {jump: trained.encode_rows(rows)[1] for jump, rows in swapped.items()}
        z |= {"true": windows.latents[:, -1], "frozen": windows.latents[:, -2]}
        found: dict[str, Any] = {}
        for k in model.support.capacities:
            mask = (torch.arange(1, model.config.latent_dim + 1) <= k).float()
            parts = [
                model.predict((s[:, :-1] * mask).to(device), a.to(device))[:, -1].float().cpu()
                for s, a in zip(torch.split(windows.latents, 512), torch.split(windows.actions, 512), strict=True)
            ]
            z_hat = torch.cat(parts)
            errors = {name: (z_hat - seen)[:, :k].square().mean(-1) for name, seen in z.items()}
            found[str(k)] = {
                jump: {
                    "auroc": auroc(errors["true"], errors[jump]),
                    "ratio": (errors[jump].median() / errors["true"].median()).item(),
                }
                for jump in JUMPS
            }
    return found


def auroc(ordinary: Float[Tensor, " n"], surprising: Float[Tensor, " m"]) -> float:
    """The probability that a surprising error is larger than an ordinary one; ties count half."""
    larger = (surprising[:, None] > ordinary).double().mean()
    return (larger + 0.5 * (surprising[:, None] == ordinary).double().mean()).item()


def _rows_elsewhere(
    trained: Trained,
    episodes: np.ndarray,
    true_rows: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """For each window a row of its episode at least ten steps from the true one."""
    rows = []
    for episode, true in zip(episodes.tolist(), true_rows.tolist(), strict=True):
        far = [row for row in trained.store.drawn_rows([episode]).tolist() if abs(row - true) >= LEAST_JUMP]
        rows.append(int(generator.choice(far)))
    return np.asarray(rows)


def _rows_of_others(episodes: np.ndarray, true_rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """For each window the true row of a window of another episode."""
    return np.asarray([generator.choice(true_rows[episodes != episode]) for episode in episodes])


def _panels(curves: Curves) -> Draw:
    tasks = list(dict.fromkeys(task for task, _, _ in curves))

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(2.9 * len(tasks) + 1.9, 2.8), layout="constrained")
        panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
        for axes, task in zip(panels, tasks, strict=True):
            for (where, method, jump), spread in curves.items():
                if where != task:
                    continue
                color, ks = theme.color((1, 0, 2)[JUMPS.index(jump)]), list(spread)
                means, errors = [s.mean for s in spread.values()], [s.sem or 0.0 for s in spread.values()]
                style = "-o" if method == "ALeWM" else "s"
                fill = color if method == "ALeWM" else "none"
                axes.errorbar(ks, means, errors, fmt=style, color=color, ms=4, mfc=fill, label=f"{method}, {jump}")
            widest = max((list(s) for (where, _, _), s in curves.items() if where == task), key=len)
            axes.axhline(0.5, color=theme.muted, linewidth=1)
            capacity_axis(axes, widest)
            axes.set(title=TASK_TITLES[task], xlabel="prefix k")
        panels[0].set_ylabel("AUROC of the prediction error")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=7)
        return figure

    return draw


RECIPE = Recipe("surprise", "prediction error on impossible jumps against ordinary frames", build)
