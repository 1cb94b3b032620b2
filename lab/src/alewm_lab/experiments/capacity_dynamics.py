"""The mean of q per capacity over training."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from alewm.capacity.prior import capacity_prior
from alewm.sweeps.choice import TASK_TITLES, Choice
from alewm.sweeps.results import Drawing, Experiment, Outcome, Recipe, Results
from alewm.sweeps.run import Run
from alewm.sweeps.work import Training
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Theme, panel_grid
from alewm.training.presets import SEEDS
from alewm_lab.experiments.training_path import Dynamics, starting_at


def build(choice: Choice) -> Experiment:
    """One model per task and seed; nothing is evaluated, since training itself records q."""
    (width,) = choice.widths(192)
    runs = tuple(run for task in choice.tasks(*TASK_TITLES) for run in choice.over_seeds(choice.alewm, task, width))

    def outcome(results: Results) -> Outcome:
        dynamics = [(f"{TASK_TITLES[run.task]}, seed {run.seed}", q_over_training(run, results)) for run in runs]
        rows: list[Row] = []
        for run, (title, found) in zip(runs, dynamics, strict=True):
            command = (Training(run).command(results.library),)
            for name, index in (("prior", 0), ("at the end", -1)):
                probabilities = [values[index] for _, values in found.values()]
                top = max(probabilities)
                rows.append([title, name, *(Cell(f"{p:.3f}", p == top, command) for p in probabilities)])
        head = ["task and seed", "when", *(f"k = {k}" for k in runs[0].config.model.capacities)]
        text = (
            "Mean probability of each capacity before the first update, where q is the prior, and in the last batches."
        )
        table = Table.of("capacity-dynamics", choice.caption(text), head, rows)
        caption = choice.caption(
            "Mean probability of each capacity over training, averaged over the batches between two logged steps; at "
            "step 0 it is the prior."
        )
        commands = tuple(Training(run).command(results.library) for run in runs)
        return Outcome((table,), (Drawing("capacity-dynamics", caption, draw_dynamics(dynamics), commands),))

    return Experiment("capacity-dynamics", choice, runs, (), outcome)


def q_over_training(run: Run, results: Results) -> Dynamics:
    """Mean q of each capacity at step 0, where it equals the prior, and at every logged step."""
    model, entries = run.config.model, results.metrics(run, "train")
    prior = capacity_prior(model.support, model.prior_degree, model.prior).tolist()
    steps = [float(entry["step"]) for entry in entries]
    return starting_at(prior, {k: (steps, [float(entry[f"q/{k}"]) for entry in entries]) for k in model.capacities})


def draw_dynamics(dynamics: Sequence[tuple[str, Dynamics]]) -> Draw:
    """A panel of each, with its title; all have one vertical range."""
    top = max(value for _, curves in dynamics for _, values in curves.values() for value in values)

    def draw(theme: Theme) -> Figure:
        figure, panels = panel_grid(len(dynamics), 4, panel=(2.9, 2.5), margin=(0.8, 0.0), sharey=True)
        for axes, (title, curves) in zip(panels, dynamics, strict=True):
            for color, (k, (steps, values)) in zip(theme.shades(len(curves)), curves.items(), strict=True):
                axes.plot(steps, values, color=color, linewidth=1.2, label=f"k = {k}")
            axes.set(title=title, xlabel="update steps", ylim=(0, 1.05 * top))
        panels[0].set_ylabel("mean q(k)")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
        return figure

    return draw


RECIPE = Recipe("capacity-dynamics", "mean q per capacity over training", build, seeds=SEEDS[:1])
