"""The page of results and its figures, made from `results/` alone: every number in it is in a file there."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from alewm.files import write_bytes, write_text
from alewm.tables import Table
from alewm.theme import as_svg
from alewm_lab.presentation import scientific
from alewm_lab.publishing import result_tables as tables
from alewm_lab.publishing.comparison_table import backbone, comparison_table, distilled_table, full_names, long_table
from alewm_lab.publishing.main_results import comparisons, main_results
from alewm_lab.publishing.published import PublishedRun, PublishedStudy, RunGroup, read_results
from alewm_lab.publishing.result_figures import (
    ResultFigure,
    difference_figure,
    dynamics_figure,
    success_figure,
    sweep_figure,
)

FIGURES = Path("images") / "results"
"""Where a page keeps its figures, beside it."""

_LEGEND = """\
d is the width of the latent, λ the weight of the regularizer, s_q the selector's learning rate relative to the model's,
α the degree of the prior. Success is the share of held-out test pairs (a start, and a goal 25 steps later in the same
episode) that were reached within the budget; ± is the standard error over seeds, which all meet the same pairs, and one
seed has the 95 % interval of its pairs instead: by demonstration where records name one, else Wilson's, which takes
pairs for independent. Records of Push-T with our own expert's data name none, so that there it is too narrow. "Not
solved at the start" leaves out the pairs that count as reached
before the first step. Mean capacity is the number of latent coordinates planned with, averaged over episodes, then
seeds."""
_PAPERS = """ The paper's figures are
those of its main table, after ten epochs on its own data and pairs, which are not ours: they say what is known, at
another budget."""


_OUR_FIGURE = re.compile(rb"<!-- data \w+ -->\n$")


def write_results_page(results: Path, out: Path) -> Path:
    """Write the page `out` and its figures from the published runs below `results`; the path of the page."""
    text, figures = results_page(results, out)
    folder = out.parent / FIGURES
    drawn = {folder / f"{figure.name}.svg": figure for figure in figures}
    for path, figure in drawn.items():
        # Not the drawing's bytes, which vary with its library, but its data tell whether it is up to date.
        write_bytes(path, as_svg(figure.draw) + f"<!-- data {figure.digest} -->\n".encode())
    write_text(out, text)
    # Last, so that an earlier page keeps its figures until the new one is there. Figures of others stay.
    for old in set(folder.glob("*.svg")) - drawn.keys():
        if _OUR_FIGURE.search(old.read_bytes()):
            old.unlink()
    return out


def results_page(results: Path, out: Path) -> tuple[str, list[ResultFigure]]:
    """The Markdown of a page that will be at `out`, and its figures, not drawn yet."""
    published, paper = read_results(results), tables.read_paper(results)
    figures: list[ResultFigure] = []
    long = long_table(published.scales)
    sections = []
    if paper is not None and (found := comparisons(published.scales, paper)):
        sections += ["## ALeWM and LeWM\n", main_results(found)]
        figures.append(difference_figure(found))
        sections.append(_picture(figures[-1]))
    sections += [] if long is None else ["## Methods after long schedules\n", long.markdown()]
    for scale in published.scales:
        alike = [other for other in published.scales if scale_title(other) == scale_title(scale)]
        sections += scale_section(scale, paper, out, figures, names_data=len(alike) > 1)
    sections += _oscillators(published.studies, out)
    top = _top(results, out, _LEGEND if paper is None else _LEGEND + _PAPERS)
    return "\n".join([top, _contents(sections), *sections]), figures


def _top(results: Path, out: Path, legend: str) -> str:
    command = f"alewm-lab results {results.name} --out {out.parent.name}/{out.name}"
    where = os.path.relpath(results, out.parent)
    return (
        f"<!-- Made by `{command}` from {results.name}/. Publish runs there (`alewm-lab publish`) and repeat. -->\n\n"
        f"# Results\n\nMade by `{command}` from the records in [{results.name}/]({where}), which hold every number on "
        f"this page, episode by episode.\n\n{legend}\n"
    )


def _contents(sections: Sequence[str]) -> str:
    """Links to the headings among `sections`, by the anchors that GitHub and MkDocs give to headings that differ."""
    titles = [part.removeprefix("## ").strip() for part in sections if part.startswith("## ")]
    anchors = (re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles)
    return "".join(f"- [{title}](#{anchor})\n" for title, anchor in zip(titles, anchors, strict=True))


def scale_section(
    scale: RunGroup,
    paper: dict[str, Any] | None,
    out: Path,
    figures: list[ResultFigure],
    *,
    names_data: bool = False,
) -> Iterator[str]:
    """The parts of the page about one scale; its figures join `figures`.

    `names_data` is for a scale that differs from another in its data alone: the heading then names the data file.
    """
    data = f", data `{scale.example.config['data']['fingerprint'][:6]}`" if names_data else ""
    yield f"## {scale_title(scale)}{data}\n"
    if any(each.evaluated() for each in scale.configurations):
        yield tables.main_table(scale, paper, _caption(scale)).markdown()
    else:
        yield f"{_caption(scale)}\n"
    yield from _shipped(scale)
    note = f" {scale.example.run.data_note}".rstrip()
    yield from _markdown(comparison_table(scale, note), distilled_table(scale, note), tables.repeats_table(scale, note))
    sweep = tables.sweep_table(scale, f"Test success (%) with every imposed capacity, without retraining.{note}")
    settings = tables.settings_table(scale, f"Other settings; on `validation` pairs configurations are selected.{note}")
    made = (success_figure(scale), sweep_figure(scale), dynamics_figure(scale))
    drawn = [figure and replace(figure, caption=figure.caption + note) for figure in made]
    for figure, table in zip(drawn, (None, sweep, settings), strict=True):
        if figure is not None:
            figures.append(figure)
            yield _picture(figure)
        yield from _markdown(table)
    yield from _markdown(
        *(make(scale, note) for make in (tables.path_table, tables.learned_table, tables.probes_table))
    )
    yield _commands(scale, out)


def _markdown(*made: Table | None) -> Iterator[str]:
    """The tables that there are."""
    return (table.markdown() for table in made if table is not None)


def scale_title(scale: RunGroup) -> str:
    """Task, data, backbone and schedule."""
    run = scale.example
    return f"{run.task_title}, {backbone(run.config)}, {run.steps:,} updates at {scientific(run.learning_rate)}"


def _caption(scale: RunGroup) -> str:
    """The scale, in words."""
    run = scale.example
    data, encoder = run.config["data"], run.config["model"]["encoder"]
    sentences = [
        f"{run.steps:,} updates of {run.config['training']['batch_size']} windows, {_epochs(run)}, at a learning rate "
        f"of {scientific(run.learning_rate)} (a complete schedule, the same for every row), of {data['episodes']:,} "
        f"episodes with {data['frames']:,} frames (fingerprint `{data['fingerprint']}`); "
        f"{backbone(run.config)}, patches of {encoder['patch_size']} and images of {encoder['image_size']} "
        f"pixels.",
        f"Trained on {_machines(scale)}.",
        *([run.run.data_note] if run.run.data_note else []),
    ]
    evaluated = [result for each in scale.configurations for result in each.evaluated()]
    if evaluated:
        first = evaluated[0]
        cem = first["planning"]["cem"]
        sentences.append(
            f"{first['episodes']} test pairs, {first['episodes'] - first['episodes_nontrivial']} of them solved at the "
            f"start; {first['budget']} steps; CEM with {cem['num_candidates']} candidates, {cem['num_iterations']} "
            f"iterations."
        )
    return " ".join(sentences)


def _epochs(run: PublishedRun) -> str:
    about = "" if "training_windows" in run.run.provenance.get("data", {}) else "about "
    return f"{about}{run.epochs:.2g} of an epoch" if run.epochs < 1 else f"{about}{run.epochs:.2g} epochs"


def _machines(scale: RunGroup) -> str:
    """Processors, which others may have used at the time, and accelerators with the seconds of a run."""
    processors = {str(run.run.provenance["processor"]) for run in scale.runs if not run.run.provenance["accelerator"]}
    accelerators: dict[str, list[float]] = {}
    for run in scale.runs:
        if name := run.run.provenance["accelerator"]:
            accelerators.setdefault(name, []).append(float(run.run.result["training"]["seconds"]))
    timed = [f"{name} ({_span(seconds)} s a run)" for name, seconds in sorted(accelerators.items())]
    return ", ".join([*timed, *sorted(processors)])


def _span(values: list[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def _shipped(scale: RunGroup) -> Iterator[str]:
    """Which of the models lie in the repository."""
    shipped = [run for run in scale.runs if "weights" in run.evaluations.get("", {})]
    if not shipped:
        return
    commands = ", ".join(
        f"`alewm evaluate pretrained/{run.run.name}` (seed {run.seed}, {run.run.result['weights']})" for run in shipped
    )
    yield (
        f"These models are in the repository, and their success above is that of the files there. To repeat it without "
        f"the data, on all {shipped[0].evaluations['']['episodes']} pairs, and to be told how many episodes ended as "
        f"published: {commands}.\n"
    )


def _picture(figure: ResultFigure) -> str:
    path = FIGURES / f"{figure.name}.svg"
    return f"![{figure.caption}]({path})\n\n*{figure.caption}* <!-- data {figure.digest} -->\n"


def _commands(scale: RunGroup, out: Path) -> str:
    blocks = []
    for name, each in zip(full_names(scale.configurations), scale.configurations, strict=True):
        runs = (*each.runs, *each.repeats)
        links = "; ".join(_link(run, out) for run in runs)
        commands = dict.fromkeys(command for run in runs for command in run.commands)
        blocks.append(f"{name}; {links}:\n\n```bash\n" + "\n".join(commands) + "\n```\n")
    return "<details><summary>Commands and records of every row</summary>\n\n" + "\n".join(blocks) + "\n</details>\n"


def _link(run: PublishedRun, out: Path) -> str:
    """The publication a run is in, with its name there, and its success."""
    link = f'[seed {run.seed}]({os.path.relpath(run.run.folder, out.parent)} "{run.run.name}")'
    result = run.evaluations.get("")
    if result is None:
        return link
    low, high = (100 * bound for bound in result["interval"])
    return f"{link} {100 * result['success_rate']:.1f} ({low:.1f} to {high:.1f})"


def _oscillators(studies: Sequence[PublishedStudy], out: Path) -> Iterator[str]:
    """The toy study and others of its kind, whose tables their own command writes."""
    if studies:
        yield "## Two oscillators\n"
    for study in studies:
        made = study.provenance
        yield study.markdown
        yield (
            f"Mean ± standard deviation over seeds, test split; `{shlex.join(shlex.split(made['command']))}` on "
            f"{made['accelerator'] or made['processor']}, {made['cores']} cores "
            f'([records]({os.path.relpath(study.path, out.parent)} "{study.name}")).\n'
        )
