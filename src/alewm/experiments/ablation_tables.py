"""What variants of one method are compared by: success, what the selector did, and what each prefix is worth."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.figure import Figure

from alewm.capacity.prior import distance_from_survival
from alewm.evaluation.statistics import Spread
from alewm.experiments.capacity_dynamics import q_over_training
from alewm.experiments.framework.choice import TASK_TITLES, Choice
from alewm.experiments.framework.contest import Groups
from alewm.experiments.framework.results import Results
from alewm.experiments.framework.run import Run
from alewm.experiments.framework.training_path import PATH_HEAD, PATH_LEGEND, path_cells
from alewm.experiments.framework.work import Training
from alewm.presentation.series import Series
from alewm.presentation.tables import NONE, Cell, Row, Table
from alewm.presentation.theme import Draw, Theme


def learns_q(run: Run) -> bool:
    """Whether q moves while it trains."""
    return run.config.model.has_selector and not run.config.objective.freezes_selector


def success_table(choice: Choice, groups: Groups, results: Results) -> Table:
    """Success, pairs won and lost against the task's first variant, capacity, and how the latent meets its target."""
    test = choice.scale.evaluation()
    first: dict[str, tuple[str, tuple[Run, ...]]] = {}
    for (task, name), runs in groups.items():
        first.setdefault(task, (name, runs))
    rows: list[Row] = []
    for (task, name), runs in groups.items():
        whole, others = first[task]
        rates = [100 * results.evaluation(run, test)["success_rate"] for run in runs]
        won, lost = only_one_reaches(choice, runs, others, results)
        shown = [
            results.over_seeds(runs, test).percent(1),
            ", ".join(f"{rate:.1f}" for rate in rates),
            NONE if name == whole else f"{won}, {lost}",
            results.over_seeds(runs, test, "mean_capacity").shown(),
            Spread.of([misfit(run, results) for run in runs]).shown(3),
            Spread.of([_effective_rank(run, results) for run in runs]).shown(1),
        ]
        commands = results.commands(runs, test)
        rows.append([TASK_TITLES[task], name, *(Cell(text, commands=commands) for text in shown)])
    head = ["task", "variant", "SR (%)", "by seed", "pairs won, lost", "E[K]", "variance off by", "rank"]
    text = (
        f"Test success (mean ± SEM over seeds, and of each seed); pairs, over all seeds, that are reached where the "
        f"same seed of {next(iter(groups))[1]} misses them, and the other way round; mean planning capacity; and from "
        f"the last batch looked at in training how far the variance of a masked coordinate is from the prior's "
        f"survival, on average over coordinates, and the effective rank of latents."
    )
    return Table.of("ablations", choice.caption(text), head, rows)


def selector_table(choice: Choice, groups: Groups, results: Results) -> Table:
    """How far q went from the prior and when, where it ended, and when prediction came."""
    rows: list[Row] = []
    for (task, name), runs in groups.items():
        dynamics = [q_over_training(run, results) for run in runs if learns_q(run)]
        commands = tuple(Training(run).command(results.library) for run in runs)
        cells = path_cells(dynamics, [_losses(run, results) for run in runs])
        rows.append([TASK_TITLES[task], name, *(Cell(text, commands=commands) for text in cells)])
    text = f"What the selector did while training: {PATH_LEGEND}."
    return Table.of("selector", choice.caption(text), ["task", "variant", *PATH_HEAD], rows)


def capacities_table(
    choice: Choice, groups: Groups, imposed: Mapping[tuple[str, str], Sequence[int]], results: Results
) -> Table:
    """Success with the capacities that were `imposed`, beside that with the chosen one."""
    ks = sorted({k for each in imposed.values() for k in each})
    rows: list[Row] = []
    for (task, name), runs in groups.items():
        cells = [
            results.success_cell(runs, choice.scale.evaluation(capacity=str(k))) if k in imposed[task, name] else NONE
            for k in ks
        ]
        rows.append([TASK_TITLES[task], name, *cells, results.success_cell(runs, choice.scale.evaluation())])
    head = ["task", "variant", *(f"k = {k}" for k in ks), "as chosen"]
    text = "Test success (%, mean ± SEM over seeds) with imposed capacities and with the capacity that is chosen."
    return Table.of("capacities", choice.caption(text), head, rows)


def success_dots(choice: Choice, groups: Groups, results: Results) -> Draw:
    """A panel per task, a line per variant, a dot per seed; the first variant stands out."""
    test = choice.scale.evaluation()
    rates = {key: [100 * results.evaluation(run, test)["success_rate"] for run in runs] for key, runs in groups.items()}
    tasks, names = (list(dict.fromkeys(parts)) for parts in zip(*groups, strict=True))

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(2.2 + 2.6 * len(tasks), 0.9 + 0.28 * len(names)), layout="constrained")
        panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
        for axes, task in zip(panels, tasks, strict=True):
            for row, name in enumerate(names):
                seeds, color = rates[task, name], theme.color(1 if row == 0 else 0)
                axes.plot([fmean(seeds)] * 2, [row - 0.3, row + 0.3], color=color, linewidth=2)
                axes.plot(seeds, [row] * len(seeds), "o", color=color, markersize=5, alpha=0.7)
            axes.set(title=TASK_TITLES[task], xlabel="test success (%)", ylim=(len(names) - 0.4, -0.6))
            axes.grid(axis="y", visible=False)
        panels[0].set_yticks(range(len(names)), names)
        return figure

    return draw


def only_one_reaches(choice: Choice, runs: Sequence[Run], others: Sequence[Run], results: Results) -> tuple[int, int]:
    """Test pairs that only `runs` reach, and that only `others` reach, seed by seed, added up."""
    test = choice.scale.evaluation()
    matched = [
        (ours.success, theirs.success)
        for run, other in zip(runs, others, strict=True)
        for ours, theirs in zip(results.records(run, test), results.records(other, test), strict=True)
    ]
    return sum(a and not b for a, b in matched), sum(b and not a for a, b in matched)


def misfit(run: Run, results: Results) -> float:
    """Mean over coordinates of |masked variance - prior survival|, the last time training looked."""
    last = results.metrics(run, "latent")[-1]
    return distance_from_survival(last["masked_variance"], last["prior_survival"])


def _losses(run: Run, results: Results) -> Series:
    entries = results.metrics(run, "train")
    return [float(entry["step"]) for entry in entries], [float(entry["prediction"]) for entry in entries]


def _effective_rank(run: Run, results: Results) -> float:
    return float(results.metrics(run, "latent")[-1]["effective_rank"])
