"""ALeWM with its selector overridden by each supported capacity, without retraining."""

from alewm.sweeps.choice import TASK_TITLES, Choice
from alewm.sweeps.results import Drawing, Experiment, Outcome, Recipe, Results, Stage
from alewm.sweeps.work import Evaluation
from alewm.tables import Cell, Row, Table
from alewm_lab.experiments.curves import Curve, Point, success_curves


def build(choice: Choice) -> Experiment:
    """The selected models of one width, evaluated with the selector and at every capacity."""
    (width,) = choice.widths(192)
    groups = {task: choice.over_seeds(choice.alewm, task, width) for task in choice.tasks(*TASK_TITLES)}
    runs = tuple(run for group in groups.values() for run in group)
    ks = runs[0].config.model.capacities
    modal = choice.scale.evaluation()
    fixed = {k: choice.scale.evaluation(capacity=str(k)) for k in ks}

    def outcome(results: Results) -> Outcome:
        rows: list[Row] = []
        curves = []
        for task, group in groups.items():
            cells = [results.success_cell(group, settings) for settings in fixed.values()]
            own = results.success_cell(group, modal)
            capacity = results.over_seeds(group, modal, "mean_capacity")
            rates = {k: results.over_seeds(group, settings) for k, settings in fixed.items()}
            best = max(rate.mean for rate in rates.values())
            marked = [Cell(c.text, rates[k].mean == best, c.commands) for k, c in zip(ks, cells, strict=True)]
            rows.append([TASK_TITLES[task], *marked, own, capacity.shown()])
            points = tuple(Point.of(k, rate, results.interval(group, fixed[k])) for k, rate in rates.items())
            star = Point.at(capacity, results.over_seeds(group, modal), results.interval(group, modal))
            curves.append(Curve(TASK_TITLES[task], points, star))
        head = ["task", *(f"k = {k}" for k in ks), "selector", "selector's E[K]"]
        text = (
            "Test success (%, mean ± SEM over seeds) of ALeWM planned with each fixed capacity and with the capacity "
            "its selector chooses; no retraining. Bold: the best fixed capacity, which only the test pairs reveal."
        )
        table = Table.of("prefix-sweep", choice.caption(text), head, rows)
        caption = choice.caption(
            "Test success of ALeWM per fixed prefix (lines) and with its selector (stars); bars are SEM, or for one "
            "seed the 95 % interval."
        )
        commands = tuple(c for settings in (modal, *fixed.values()) for c in results.commands(runs, settings))
        drawing = Drawing("prefix-sweep", caption, success_curves(curves), tuple(dict.fromkeys(commands)))
        return Outcome((table,), (drawing,))

    works = [Evaluation(run, settings) for run in runs for settings in fixed.values()]
    works += [Evaluation(run, modal, num_animations=choice.scale.num_animations) for run in runs]
    stage = Stage("planning to test pairs at every capacity", lambda _: works, len(works))
    return Experiment("prefix-sweep", choice, runs, (stage,), outcome)


RECIPE = Recipe("prefix-sweep", "success of ALeWM with its selector overridden by each supported capacity", build)
