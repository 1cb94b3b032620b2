"""Training with capacities from a fixed prior, planned at every capacity, against ALeWM's operating point."""

from alewm.sweeps.choice import DEGREE, TASK_TITLES, WEIGHT, Choice
from alewm.sweeps.results import Candidate, Drawing, Experiment, Outcome, Recipe, Results, Stage, select, unique
from alewm.sweeps.run import Run
from alewm.sweeps.work import Evaluation
from alewm.tables import Row, Table
from alewm_lab.experiments.curves import Curve, Point, success_curves


def build(choice: Choice) -> Experiment:
    """At every capacity its own best configuration, chosen on validation pairs; ALeWM as the paper selected it."""
    (width,) = choice.widths(192)
    tasks = choice.tasks("push-t", "cube")
    changes = choice.variations(*((WEIGHT, DEGREE) if choice.searches else (WEIGHT,)))
    candidates = {
        task: [Candidate(choice.over_seeds(choice.nested_dropout, task, width, changes=each)) for each in changes]
        for task in tasks
    }
    alewm = {task: choice.over_seeds(choice.alewm, task, width) for task in tasks}
    ks = alewm[tasks[0]][0].config.model.capacities
    validation = {k: choice.scale.evaluation("validation", capacity=str(k)) for k in ks}
    test = {k: choice.scale.evaluation(capacity=str(k)) for k in ks}
    modal = choice.scale.evaluation()
    nested = unique([run for group in candidates.values() for candidate in group for run in candidate.runs])
    to_validate = [Evaluation(run, settings) for run in nested for settings in validation.values()]

    def chosen(results: Results, task: str, k: int) -> tuple[Run, ...]:
        return select(candidates[task], results, validation[k]).runs

    def to_test(results: Results) -> list[Evaluation]:
        works = [Evaluation(run, test[k]) for task in tasks for k in ks for run in chosen(results, task, k)]
        return works + [Evaluation(run, modal) for runs in alewm.values() for run in runs]

    def outcome(results: Results) -> Outcome:
        rows: list[Row] = []
        curves = []
        commands: dict[str, None] = {}
        for task in tasks:
            groups = {k: chosen(results, task, k) for k in ks}
            cells = [results.success_cell(groups[k], test[k]) for k in ks]
            own = results.success_cell(alewm[task], modal)
            rows.append([TASK_TITLES[task], *cells, own, results.capacity_cell(alewm[task], modal)])
            weights = [f"{groups[k][0].config.objective.regularizer_weight:g}" for k in ks]
            degrees = [f"{groups[k][0].config.model.prior_degree:g}" for k in ks]
            rows.append(["  its λ, α", *(f"{w}, {a}" for w, a in zip(weights, degrees, strict=True)), "", ""])
            points = tuple(
                Point.of(k, results.over_seeds(groups[k], test[k]), results.interval(groups[k], test[k])) for k in ks
            )
            star = Point.at(
                results.over_seeds(alewm[task], modal, "mean_capacity"),
                results.over_seeds(alewm[task], modal),
                results.interval(alewm[task], modal),
            )
            curves.append(Curve(TASK_TITLES[task], points, star, fixed_label="Nested Dropout"))
            commands |= dict.fromkeys(command for cell in (*cells, own) for command in cell.commands)
        head = ["task", *(f"k = {k}" for k in ks), "ALeWM", "ALeWM's E[K]"]
        text = (
            "Test success (%, mean ± SEM over seeds) of models trained with capacities from the fixed prior, at every "
            "capacity with the configuration that is best there on validation pairs, and of ALeWM."
        )
        table = Table.of("nested-dropout", choice.caption(text), head, rows)
        drawing = Drawing("nested-dropout", choice.caption(text), success_curves(curves), tuple(commands))
        return Outcome((table,), (drawing,))

    num_tested = len(tasks) * len(choice.seeds) * (len(ks) + 1)
    return Experiment(
        "nested-dropout",
        choice,
        unique([*nested, *(run for runs in alewm.values() for run in runs)]),
        (
            Stage("selecting on validation pairs at every capacity", lambda _: to_validate, len(to_validate)),
            Stage("planning to test pairs", to_test, num_tested),
        ),
        outcome,
    )


RECIPE = Recipe(
    "nested-dropout",
    "training with capacities from a fixed prior, at every capacity, against ALeWM",
    build,
    compares_configurations=True,
)
