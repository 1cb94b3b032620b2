"""ALeWM beside LeWM of the same width, task by task: the README's table, one sentence per task, one figure.

A row is a task, its data and a schedule on which both were trained. Schedules of 12,000 updates and more compare each
method's best configuration on validation pairs, whatever its learning rate; of shorter ones the rate with most seeds is
shown, with the paper's settings.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alewm.errors import InputError
from alewm.evaluation.statistics import Spread
from alewm.files import write_text
from alewm.tables import Row, Table
from alewm_lab.experiments.request import LONG_STEPS, TASK_TITLES
from alewm_lab.presentation import scientific
from alewm_lab.publishing.comparison_table import (
    TITLES,
    Compared,
    backbone,
    best,
    compare,
    long_comparisons,
    rival_of,
)
from alewm_lab.publishing.published import Configuration, PublishedRun, RunGroup, read_results
from alewm_lab.publishing.result_tables import paper_values, read_paper

_MARKED = re.compile(r"(<!-- results: [^\n]*-->\n).*?(<!-- /results -->)", re.S)
"""The place of a page that holds the table."""

_BACKBONE, _WIDTH, _SEARCH = "ViT-Tiny", 192, (300, 30)
"""What all rows have: the encoder, coordinates, and the search's candidates and iterations. Rows of one task and data
are compared with each other, and say neither."""

_CAPTION = (
    "Success (%) on held-out pairs of start and goal, mean over seeds ± standard error; in brackets the capacity that "
    f"was planned with. {_BACKBONE}, {_WIDTH} coordinates, CEM {_SEARCH[0]} x {_SEARCH[1]}. "
    "The 95 % interval of the difference is a bootstrap "
    "over seeds and episodes (demonstrations where episodes are copies). From 12,000 updates on, each method "
    "has the learning rate and λ that are best on validation pairs, of those that were tried. Shorter schedules have "
    "the rate with most seeds. Updates times rate are at most {most:.1f} here, and 2.8 to 7.6 in the paper."
)


@dataclass(frozen=True)
class MethodComparison:
    """ALeWM and LeWM of its width, trained on the same data with as many updates, and met on the same pairs."""

    ours: Configuration
    theirs: Configuration
    compared: Compared
    papers: tuple[tuple[float, float, float], tuple[float, float, float]]
    """The paper's success, its error and the capacity, of ALeWM and of LeWM."""
    num_configurations: tuple[int, int] = (1, 1)
    """Those that each was chosen from."""

    @property
    def example(self) -> PublishedRun:
        return self.ours.runs[0]

    @property
    def title(self) -> str:
        """Task and data."""
        return self.example.task_title

    @property
    def num_seeds(self) -> tuple[int, int]:
        """Trainings of each that were compared."""
        return len(self.compared.ours), len(self.compared.theirs)

    @property
    def repetitions(self) -> tuple[int, int]:
        """By which comparisons are ordered: trainings of the method that has fewer, then of both."""
        return min(self.num_seeds), sum(self.num_seeds)

    @property
    def seeds(self) -> str:
        """How many trainings of each were compared; one number where it is the same."""
        return " and ".join(str(count) for count in dict.fromkeys(self.num_seeds))

    @property
    def schedule(self) -> str:
        """Updates and rates."""
        rates = [scientific(each.runs[0].learning_rate) for each in (self.ours, self.theirs)]
        return f"{self.example.steps:,} at {rates[0]}" + (f", LeWM {rates[1]}" if len(set(rates)) > 1 else "")

    def sentence(self) -> str:
        """Who is ahead, by how much, and what that rests on."""
        reading = self.compared.found.verdict
        verdict = "undecided" if reading == "undecided" else f"ALeWM is {reading}"
        difference = self.compared.difference.replace(" (", " points (", 1)
        seeds = f"{self.seeds} seed" + "s" * (self.seeds != "1")
        tried = "configurations tried: {} and {}, ".format(*self.num_configurations)
        chosen = tried if self.example.steps >= LONG_STEPS else ""
        return (
            f"**{self.title}**: {verdict}, {difference}; {self.example.steps:,} updates, {seeds}, {chosen}"
            f"{self.compared.num_pairs:,} pairs."
        )

    def row(self) -> Row:
        """Its cells in the table."""
        compared = self.compared
        ours, theirs = (
            Spread.of([float(run.evaluations[compared.settings]["success_rate"]) for run in runs]).percent(1)
            for runs in (compared.ours, compared.theirs)
        )
        capacity = Spread.of([float(run.evaluations[compared.settings]["mean_capacity"]) for run in compared.ours])
        (paper, _, paper_capacity), (paper_lewm, _, _) = self.papers
        return [
            self.title,
            self.schedule,
            self.seeds,
            f"{compared.num_pairs:,}",
            f"{ours} [{capacity.mean:.0f}]",
            theirs,
            compared.difference,
            f"{paper:.1f} [{paper_capacity:.0f}], {paper_lewm:.1f}",
        ]


def comparisons(scales: Sequence[RunGroup], paper: Mapping[str, Any]) -> list[MethodComparison]:
    """All that the records hold of the encoder, coordinates and search that the table is about."""
    found: list[MethodComparison] = []
    for methods in long_comparisons(scales):
        ours, theirs = (methods.get(TITLES[name], []) for name in ("alewm", "lewm"))
        if ours and theirs:
            counts = len(ours), len(theirs)
            found += _comparison(best(ours), best(theirs), paper, counts, is_tuned=True)
    for scale in scales:
        rival = rival_of(scale)
        if rival is not None and scale.example.steps < LONG_STEPS:
            for each in scale.configurations:
                found += _comparison(each, rival, paper, (1, 1), is_tuned=False)
    return sorted(found, key=_order)


def _order(comparison: MethodComparison) -> tuple[int, bool, int]:
    """Tasks in the paper's order, data made as the paper's before others, the longest schedule first."""
    task, steps, *_ = comparison.example.scale
    return task, bool(comparison.example.other_data), steps


def _comparison(
    ours: Configuration, theirs: Configuration, paper: Mapping[str, Any], counts: tuple[int, int], *, is_tuned: bool
) -> list[MethodComparison]:
    """None or one: the paper has both, ours with the paper's settings or tuned, and both met the same pairs."""
    papers = paper_values(ours, paper, is_tuned=is_tuned), paper_values(theirs, paper)
    is_pair = ours.config["objective"]["method"] == "alewm" and theirs.config["objective"]["method"] == "lewm"
    if not is_pair or papers[0] is None or papers[1] is None:
        return []
    models = [(backbone(each.config), each.config["model"]["latent_dim"]) for each in (ours, theirs)]
    if models != 2 * [(_BACKBONE, _WIDTH)]:
        return []
    compared = compare(ours, theirs)
    if compared is None:
        return []
    if any(_search(run, compared.settings) != _SEARCH for run in (*compared.ours, *compared.theirs)):
        return []
    return [MethodComparison(ours, theirs, compared, (papers[0], papers[1]), counts)]


def _search(run: PublishedRun, settings: str) -> tuple[int, int]:
    cem = run.evaluations[settings]["planning"]["cem"]
    return cem["num_candidates"], cem["num_iterations"]


def shown_comparisons(found: Sequence[MethodComparison]) -> list[MethodComparison]:
    """Of each task and its data the longest schedule, and the shorter one with most seeds if it has more."""
    shown: list[MethodComparison] = []
    for data in dict.fromkeys(comparison.title for comparison in found):
        of_data = [comparison for comparison in found if comparison.title == data]
        longest = max(of_data, key=lambda comparison: (comparison.example.steps, comparison.repetitions))
        repeated = max(of_data, key=lambda comparison: comparison.repetitions)
        shown += [longest, *([repeated] if repeated.repetitions[0] > longest.repetitions[0] else [])]
    return shown


def methods_table(found: Sequence[MethodComparison]) -> Table:
    """The rows of the README."""
    head = ["task", "updates at rate", "seeds", "pairs", "ALeWM", "LeWM", "difference (points)", "paper: ALeWM, LeWM"]
    shown = shown_comparisons(found)
    runs = [each.runs[0] for comparison in shown for each in (comparison.ours, comparison.theirs)]
    caption = _CAPTION.format(most=max(run.steps * run.learning_rate for run in runs))
    return Table.of("main-results", caption, head, [comparison.row() for comparison in shown])


def sentences(found: Sequence[MethodComparison]) -> str:
    """One for each task, about the first row of its table."""
    first = {comparison.example.config["task"]: comparison for comparison in reversed(shown_comparisons(found))}
    return "".join(f"- {first[task].sentence()}\n" for task in TASK_TITLES if task in first)


def main_results(found: Sequence[MethodComparison]) -> str:
    """The table and the sentences."""
    return f"{methods_table(found).markdown()}\n{sentences(found)}"


def write_marked(page: Path, results: Path) -> None:
    """Write the table and the sentences into `page`, between its two marks."""
    before = page.read_text()
    if len(_MARKED.findall(before)) != 1:
        raise InputError(
            f"{page} must have one place between lines <!-- results: ... --> and <!-- /results --> for the table."
        )
    paper = read_paper(results)
    if paper is None:
        raise InputError(f"{results} has no paper.json, the paper's table that ours is set beside.")
    found = comparisons(read_results(results).scales, paper)
    if not found:
        raise InputError(f"{results} holds no ALeWM and LeWM of the paper that met the same pairs: no table to write.")
    text = main_results(found)
    write_text(page, _MARKED.sub(lambda marks: f"{marks[1]}{text}{marks[2]}", before))
