"""Running an experiment by name, in this process or by an executor; its tables, figures and page."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from html import escape
from pathlib import Path
from typing import Any

import torch

from alewm.data.collect import collect_command
from alewm.data.store import EpisodeStore
from alewm.envs.collect_task import collect_task
from alewm.envs.registry import get_task
from alewm.errors import InputError, unknown_name
from alewm.files import read_object, write_bytes, write_json, write_text
from alewm.progress import Progress
from alewm.report import html
from alewm.sweeps.executors import LocalProcesses
from alewm.sweeps.jobs import Executor, JobResources, finish_all, make_job, missing_works, planned_work
from alewm.sweeps.library import EvaluationWork, Library, TrainingWork, Work
from alewm.theme import as_svg
from alewm.training.presets import preset
from alewm_lab import oscillator
from alewm_lab.experiments import (
    ablations,
    capacity_dynamics,
    comparisons,
    main_table,
    measured_models,
    rollouts,
    theory,
)
from alewm_lab.experiments.estimate import TINY_PRESET, Cost, Hours, evaluation_cost, hours_of
from alewm_lab.experiments.experiment import Experiment, Outcome, Recipe, Results
from alewm_lab.experiments.panels import as_png
from alewm_lab.experiments.request import TASK_TITLES, OwnData
from alewm_lab.table_formats import latex, table_json


def record_own_data(library: Library, own: OwnData, data_sets: set[str]) -> None:
    """Record Two-Room episodes of small images for each of `data_sets` that `library` lacks.

    A second data set, `two-room-2`, has other episodes.
    """
    size = preset(TINY_PRESET).model.encoder.image_size
    for name in sorted(data_sets):
        number = int(name.removeprefix("two-room-")) - 1 if name != "two-room" else 0
        path, seed = library.data_path(name), own.seed + number
        collect_task("two-room", path, num_episodes=own.num_episodes, seed=seed, image_size=size, jobs=1)


def data_notes(library: Library, data_sets: set[str]) -> str:
    """What every caption must say about data that was recorded here instead of where published numbers are from."""
    notes = []
    for name in sorted(data_sets):
        with EpisodeStore.open(library.data_path(name)) as store:
            command = collect_command(store.attributes, store.path.name)
            task = store.attributes["task"] if command else None  # a data set may be called otherwise
        if task is not None and (note := get_task(task).note_on(command)):
            notes.append(f"{TASK_TITLES[task]}: {note}")
    return " ".join(dict.fromkeys(notes))


DESCRIPTION = "experiment.json"


def write_outcome(experiment: Experiment, outcome: Outcome, summary: str, command: str, out: Path) -> Path:
    """Writes everything below `out`; the path of the description that `alewm report` reads."""
    for table in outcome.tables:
        for suffix, text in (("md", table.markdown()), ("tex", latex(table)), ("csv", table.csv())):
            write_text(out / "tables" / f"{table.name}.{suffix}", text)
    for drawing in outcome.drawings:
        write_bytes(out / "figures" / f"{drawing.name}.svg", as_svg(drawing.draw))
        write_bytes(out / "figures" / f"{drawing.name}.png", as_png(drawing.draw))
    for film in outcome.films:
        write_bytes(out / "films" / f"{film.name}.gif", film.gif)
    description = {
        "name": experiment.name,
        "summary": summary,
        "command": command,
        "scale": experiment.request.scale.name,
        "note": experiment.request.scale.note,
        "seeds": list(experiment.request.seeds),
        "only": list(experiment.request.only),
        "runs": [run.name for run in experiment.runs],
        "findings": list(outcome.findings),
        "tables": [table_json(table) for table in outcome.tables],
        "figures": [{"name": d.name, "caption": d.caption, "commands": list(d.commands)} for d in outcome.drawings],
        "films": [{"name": film.name, "caption": film.caption} for film in outcome.films],
    }
    write_json(out / DESCRIPTION, description)
    return out / DESCRIPTION


LOGS = Path("experiments") / "logs"
"""The folder among runs for what other processes print."""


def execute(
    experiment: Experiment, library: Library, *, jobs: int, device: torch.device, executor: Executor | None = None
) -> Outcome:
    """Do what is missing and return the tables and figures; finished work is not repeated.

    Without an `executor`, `jobs` processes of this machine do it; one job is this process.
    """
    if executor is None and jobs > 1:
        executor = LocalProcesses.sharing(jobs, device, JobResources())
    with nullcontext() if executor is None else closing(executor):
        library.check_data(experiment.data_sets)
        results = Results(library)
        _perform(chains(experiment, results), "runs", library, device, executor)
        if experiment.tests is not None:
            tests = [[work] for work in experiment.tests(results)]
            _perform(tests, "planning to test pairs", library, device, executor)
    return experiment.outcome(results).noting(data_notes(library, experiment.data_sets))


def chains(experiment: Experiment, results: Results) -> list[list[Work]]:
    """Every run's training, followed by the work on that run that is known already.

    So each model is evaluated before the next one is trained, and an interrupted experiment has results.
    """
    by_run: dict[str, list[Work]] = {run.key: [TrainingWork(run)] for run in experiment.runs}
    for work in experiment.known_works(results)[0]:
        by_run[work.run.key].append(work)
    return list(by_run.values())


def _perform(
    asked: Sequence[Sequence[Work]], title: str, library: Library, device: torch.device, executor: Executor | None
) -> None:
    """Do what is missing of each chain, in order; an executor runs chains in parallel."""
    left = [[work for work in dict.fromkeys(chain) if not work.is_done(library)] for chain in asked]
    missing = list(dict.fromkeys(map(tuple, filter(None, left))))
    if executor is None or not missing:
        for work in (work for chain in missing for work in chain):
            if not work.is_done(library):  # under the name of another preset with the same configuration
                work.perform(library, device)
        return
    logs = library.root / LOGS
    jobs = [make_job(f"{chain[0].run.name}-{i}", chain, library, executor, logs) for i, chain in enumerate(missing)]
    with Progress(title, len(asked), "units", done=len(asked) - len(missing)) as bar:
        failures = finish_all(jobs, executor, bar)
    if failures:
        lines = "\n".join(f"  {name}: {failure}" for name, failure in failures.items())
        raise InputError(f"{len(failures)} of {len(jobs)} units of work failed; {logs} has what they printed:\n{lines}")


def planned(experiment: Experiment, library: Library, updates_per_second: float | None = None) -> Iterator[str]:
    """Lines for a terminal: every command, the count of runs, and an estimate of hours."""
    works, is_all = experiment.known_works(Results(library))
    hours = estimated_hours(experiment, library, updates_per_second)
    trainings = [TrainingWork(run) for run in experiment.runs]
    return planned_work(trainings, works, library, hours.lines(), 0 if is_all else experiment.num_tests)


def estimated_hours(experiment: Experiment, library: Library, updates_per_second: float | None = None) -> Hours:
    """Hours of what is missing, one thing after the other."""
    works, is_all = experiment.known_works(Results(library))
    costs = [evaluation_cost(work) for work in missing_works(works, library) if isinstance(work, EvaluationWork)]
    if not is_all:
        # Validation has not selected yet: as many tests as there may be, of the mean cost of all runs.
        test = experiment.request.scale.evaluation()
        every = [evaluation_cost(EvaluationWork(run, test)) for run in experiment.runs]
        costs += [Cost(experiment.num_tests * each.seconds / len(every), each.basis) for each in every]
    return hours_of(experiment.runs, costs, library, updates_per_second)


_IN_ORDER = (
    main_table.RECIPE,
    comparisons.NESTED_DROPOUT,
    comparisons.PREFIX_SWEEP,
    comparisons.SIGREG_ABLATION,
    comparisons.GOAL_COST,
    capacity_dynamics.CAPACITY_DYNAMICS,
    capacity_dynamics.TWO_DATA_SETS,
    measured_models.REACHER_CAPACITY,
    rollouts.RECIPE,
    theory.RECIPE,
    ablations.RECIPE,
    comparisons.SELECTION_RULES,
    measured_models.PROBES_RECIPE,
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _IN_ORDER}
"""In the order of the paper; those beyond it last."""


def recipe(name: str) -> Recipe:
    """The experiment called `name`; an unknown name is refused, proposing the nearest."""
    if name not in RECIPES:
        raise unknown_name("experiment", name, [*RECIPES, oscillator.NAME])
    return RECIPES[name]


def is_experiment(folder: Path) -> bool:
    """Whether `alewm-lab experiment` wrote this folder."""
    return (folder / DESCRIPTION).is_file()


def write_experiments_report(folders: Sequence[Path], out: Path) -> Path:
    """Write `out/index.html` from the experiments' folders alone; the path of the page."""
    described = [(folder, _read(folder)) for folder in folders]
    title = " · ".join(content["name"] for _, content in described)
    subtitle = " ".join(dict.fromkeys(content["note"] for _, content in described))
    return html.write_page(out, title, subtitle, *(_section(folder, content) for folder, content in described))


def _read(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    if not path.is_file():
        raise InputError(f"{folder} holds no experiment: expected {DESCRIPTION} in it.")
    content = read_object(path)
    missing = {"name", "note", "summary", "command", "tables", "figures", "films", "findings"} - content.keys()
    if missing:
        raise InputError(f"{path} lacks {', '.join(sorted(missing))}; repeat the command that wrote it.")
    return content


def _section(folder: Path, content: dict[str, Any]) -> str:
    parts = [html.paragraph(content["summary"]), f"<p><code>{escape(content['command'])}</code></p>"]
    parts += [html.paragraph(finding) for finding in content["findings"]]
    for table in content["tables"]:
        parts += [_table(table), html.paragraph(table["caption"]), _commands(_cells(table))]
    figures = [_figure(folder, figure) for figure in content["figures"]]
    parts += figures
    parts += [_commands([(f["name"], f["commands"]) for f in content["figures"]])]
    films = [
        html.film((folder / "films" / f"{film['name']}.gif").read_bytes(), film["caption"]) for film in content["films"]
    ]
    if films:
        parts.append(html.grid(films))
    return html.section(content["name"], *parts)


def _table(table: dict[str, Any]) -> str:
    rows = [[cell["text"] for cell in row] for row in table["rows"]]
    best = {(i, j) for i, row in enumerate(table["rows"]) for j, cell in enumerate(row) if cell["best"]}
    return html.table(table["head"], rows, best=best)


def _figure(folder: Path, figure: dict[str, Any]) -> str:
    return html.figure((folder / "figures" / f"{figure['name']}.svg").read_bytes(), figure["caption"])


def _cells(table: dict[str, Any]) -> Iterable[tuple[str, list[str]]]:
    for row in table["rows"]:
        label = " · ".join(cell["text"] for cell in row if not cell["commands"])
        for name, cell in zip(table["head"], row, strict=True):
            yield f"{label} · {name}", cell["commands"]


def _commands(cells: Iterable[tuple[str, list[str]]]) -> str:
    rows = [(label, "\n".join(commands)) for label, commands in cells if commands]
    return html.folded("Commands behind every number", rows) if rows else ""
