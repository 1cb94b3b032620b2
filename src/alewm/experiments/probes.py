"""How much of the true state each prefix holds: linear and network probes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from alewm.envs.visible import readings
from alewm.errors import InputError
from alewm.evaluation.own_data import own_data_path
from alewm.evaluation.statistics import Spread
from alewm.experiments.framework.choice import TASK_TITLES, Choice
from alewm.experiments.framework.curves import capacity_axis
from alewm.experiments.framework.experiment import Drawing, Experiment, Outcome, Recipe, Stage
from alewm.experiments.framework.measured import write_measurement
from alewm.experiments.framework.probing import fit_networks, fit_ridge, recovered
from alewm.experiments.framework.results import Results
from alewm.experiments.framework.trained import SAMPLE_SEED, Trained
from alewm.experiments.framework.work import Measurement, Training
from alewm.presentation.tables import Cell, Row, Table
from alewm.presentation.theme import Draw, Theme
from alewm.training.checkpoint import read_description
from alewm.training.data_sets import data_set_of
from alewm.training.run import latest_checkpoint

PROBES = ("linear", "network")
Curves = dict[tuple[str, str, str], dict[int, Spread]]
"""R² by capacity, for each task, method and probe."""


def build(choice: Choice) -> Experiment:
    """ALeWM and LeWM of one width; probes fitted on training frames, scored on frames of test episodes."""
    (width,) = choice.widths(192)
    groups = choice.both_methods(TASK_TITLES, width)
    runs = tuple(run for group in groups.values() for run in group)
    ks = choice.alewm("two-room" if choice.is_smoke else runs[0].task, width, choice.seeds[0]).config.model.capacities
    options = (
        ("capacities", ks),
        ("num_train", 400 if choice.is_smoke else 20_000),
        ("num_test", 100 if choice.is_smoke else 5_000),
        ("num_steps", 20 if choice.is_smoke else 3_000),
    )
    measured = {run: Measurement(run, "probes", measure, options, choice.command("probes")) for run in runs}

    def outcome(results: Results) -> Outcome:
        curves: Curves = {}
        rows: list[Row] = []
        for (task, method), group in groups.items():
            found = [results.measured(measured[run]) for run in group]
            commands = tuple(w.command(results.library) for run in group for w in (Training(run), measured[run]))
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
        table = Table.of("probes", choice.caption(text), head, rows)
        commands = tuple(Training(run).command(results.library) for run in runs)
        return Outcome((table,), (Drawing("probes", choice.caption(text), _panels(curves), commands),))

    works = list(measured.values())
    stage = Stage("probing", lambda _: works, len(works))
    return Experiment("probes", choice, runs, (stage,), outcome)


def probe_run(
    run: Path, capacities: Sequence[int], amounts: Mapping[str, int], *, data_path: Path | None, device: torch.device
) -> tuple[Path, dict[str, Any]]:
    """R² of one run's prefixes, as `measure` finds it, and the file it is kept in.

    Without `capacities` prefixes are those the model supports; the data file is the run's own, at `data_path` if it
    has moved.
    """
    description = read_description(latest_checkpoint(run))
    model = description.config.model
    ks = tuple(capacities) or model.capacities
    if list(ks) != sorted(set(ks)) or ks[0] < 1 or ks[-1] > model.latent_dim:
        raise InputError(
            f"Capacities must increase from at least 1 to at most {model.latent_dim}, the width of {run}'s latent; got "
            f"{', '.join(map(str, ks))}."
        )
    if len(description.config.data_sets) > 1:
        raise InputError(f"{run} learned from several data sets. Only a model of one task can be probed.")
    options = {"capacities": ks, **amounts}
    data = own_data_path(run, data_set_of(description), data_path)
    measured = measure(run, data, device, options)
    return write_measurement(run, "probes", options, measured), measured


def probe_table(measured: Mapping[str, Any]) -> str:
    """R² of every part of the state by prefix, and their mean, for a terminal."""
    names = measured["factors"]
    wide = max(len(name) for name in ("R² by k", *names)) + 2
    lines = []
    for probe in PROBES:
        by_k = measured[probe]
        lines.append(f"{probe + ' R²':<{wide}}" + "".join(f"{'k = ' + k:>9}" for k in by_k))
        for name in names:
            lines.append(f"{name:<{wide}}" + "".join(f"{each['factors'][name]:>9.3f}" for each in by_k.values()))
        lines.append(f"{'mean':<{wide}}" + "".join(f"{each['mean']:>9.3f}" for each in by_k.values()))
    return "\n".join(lines)


def measure(folder: Path, data: Path, device: torch.device, options: Mapping[str, Any]) -> dict[str, Any]:
    """R² from every prefix of all that frames show of the state, by both probes; what never varies is left out."""
    with Trained.open(folder, data, device) as trained:
        sides = []
        for part, most in (("train", options["num_train"]), ("test", options["num_test"])):
            rows = trained.rows(part, most)
            sides.append((trained.encode_rows(rows)[1], _visible_state(trained, rows)))
    (x, state), (test_x, test_state) = sides
    names = [name for name in state if min(state[name].std(), test_state[name].std()) > 1e-9]
    y, test_y = (
        torch.tensor(np.stack([each[name] for name in names], 1), dtype=torch.float32) for each in (state, test_state)
    )
    ks = options["capacities"]
    generator = torch.Generator().manual_seed(SAMPLE_SEED)
    seen = torch.arange(x.shape[1]) < torch.tensor(ks)[:, None]
    networks = fit_networks(x, y, seen, generator, device=device, num_steps=options["num_steps"])
    predicted = {
        "linear": [fit_ridge(x[:, :k], y)(test_x[:, :k]) for k in ks],
        "network": list(networks(test_x)),
    }
    found: dict[str, Any] = {"factors": names}
    for probe in PROBES:
        scores = [recovered(each, test_y).tolist() for each in predicted[probe]]
        found[probe] = {
            str(k): {"mean": fmean(each), "factors": dict(zip(names, each, strict=True))}
            for k, each in zip(ks, scores, strict=True)
        }
    return found


def _visible_state(trained: Trained, rows: np.ndarray) -> dict[str, np.ndarray]:
    visible = trained.task.visible
    columns = {name: np.asarray(trained.store.column(name)[rows]) for name in {each.column for each in visible}}
    return readings(visible, columns)


def _panels(curves: Curves) -> Draw:
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


RECIPE = Recipe("probes", "linear and network recovery of the true state from each prefix", build)
