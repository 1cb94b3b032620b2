"""From finished runs and oscillator studies to one publication: the rows behind their numbers.

Weights, frames, actions and the points of figures stay behind. `alewm_lab.publishing.publication` defines the tables.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from alewm.config import differences
from alewm.errors import InputError
from alewm.evaluation.settings import EvaluationSettings
from alewm.evaluation.success import EpisodeRecord, read_records
from alewm.files import read_if_there, read_json
from alewm.report.gather import read_run
from alewm.runs.folder import clean_commit, portable
from alewm_lab.publishing.publication import (
    Part,
    PublishedPart,
    Row,
    part_of,
    publication_name,
    publication_rows,
    publication_text,
    read_group,
    rounded,
    write_publication,
)

MOST_TRAINING_LINES = 100
"""Lines of metrics kept per kind; of longer logs every n-th, the last always."""
MOST_MEASUREMENT_BYTES = 200_000
"""Larger measurements are left out, and named."""


@dataclasses.dataclass(frozen=True)
class Published:
    """What one call of `publish_runs` wrote."""

    path: Path | None
    """The new file; None where everything was published before."""
    parts: tuple[Part, ...]
    """What the file holds."""
    left_out: tuple[Path, ...]
    """Measurements too large to be published."""


def publish_runs(runs: Sequence[Path], group: Path, *, allow_changes: bool = False) -> Published:
    """Writes what `group` does not hold yet of `runs` to one new file there; repeating the call writes nothing.

    All runs are checked first. Refused are unfinished runs, runs without an evaluation, unless `allow_changes` numbers
    from code that no commit has, and anything that was published in this group under the same name with other content:
    a published number is never replaced.
    """
    names = [run.resolve().name for run in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"Two of the runs are called {', '.join(twice)}; rename a folder, or publish them apart.")
    for run in runs:
        _check_finished(run)
        if not allow_changes:
            _check_commits(run)
    before = read_group(group)
    rows: list[Row] = []
    for run, name in zip(runs, names, strict=True):
        rows += _new(study_rows(run, name) if is_study(run) else _run_rows(run, name), before)
    left_out = tuple(path for run in runs for path in _measurements(run) if _is_too_large(path))
    if not rows:
        return Published(None, (), left_out)
    text = publication_text(rows)
    path = group / publication_name(text, _date(rows))
    write_publication(path, text)
    return Published(path, tuple(dict.fromkeys(map(part_of, rows))), left_out)


def episode_columns(record: EpisodeRecord, support: Sequence[int] = ()) -> Row:
    """One evaluated pair as columns: what it is, its outcome, its distance from the goal first and last, q.

    `pair` names the same start and goal in every evaluation on the same data. `demonstration` is what the episode is a
    copy of, or the episode itself where it is no copy: pairs of one demonstration are not independent.
    """
    values = dataclasses.asdict(record)
    distances, costs, q = values.pop("distances"), values.pop("predicted_costs"), values.pop("q")
    demonstration, planning_seed = values.pop("demonstration", None), values.pop("seed")
    if record.replay_success is None:
        del values["replay_success"]
    pair = f"{record.episode}:{record.start_step}-{record.goal_step}"
    known = {"planning_seed": planning_seed, "pair": pair}
    values = known | {"demonstration": record.episode if demonstration is None else demonstration} | values
    values |= {"first_distance": distances[0], "last_distance": distances[-1], "first_predicted_cost": costs[0]}
    values |= {f"q/{k}": share for k, share in zip(support, q, strict=False)}
    return rounded(values)


def _check_finished(run: Path) -> None:
    if is_study(run):
        check_study_finished(run)
        return
    read_run(run)
    result = read_if_there(run / "result.json")
    if "training" not in result:
        raise InputError(f"{run} has not finished training: repeat its `alewm train` command, then evaluate it.")
    config = read_json(run / "config.json")
    if "imported_from" in config:
        raise InputError(
            f"{run} was imported: how and on which episodes it was trained is not known here, so the page of results "
            f"has no row for it. `alewm report {run}` shows it alone."
        )
    if any(isinstance(value, dict) for value in config.get("data", {}).values()):
        raise InputError(f"{run} learned from several data sets, which the page of results has no table for yet.")
    if "evaluated" not in result and not _evaluations(run):
        raise InputError(f"{run} has not been evaluated: `alewm evaluate {run}` first.")


def _check_commits(run: Path) -> None:
    """Refuses numbers whose code cannot be looked up: what trained `run`, evaluated it and measured on it."""
    results = [run / "result.json", *(folder / "result.json" for folder in _evaluations(run)), *_measurements(run)]
    made_with = {path: read_if_there(path).get("made_with") for path in results}
    made_with = {run / "provenance.json": read_json(run / "provenance.json")} | made_with
    for path, made in made_with.items():
        if made is not None and clean_commit(made) is None:
            raise InputError(
                f"{path} comes from code that no commit has (its commit is {made.get('commit') or 'unknown'}), so its "
                f"numbers cannot be repeated. Make it again from a clean commit, or publish it with --allow-changes."
            )


def _new(rows: Iterable[Row], before: dict[Part, PublishedPart]) -> list[Row]:
    """The rows of parts that are not published yet; a part that is published with other content is refused."""
    parts: dict[Part, list[Row]] = {}
    for row in rows:
        parts.setdefault(part_of(row), []).append(row)
    for part, found in parts.items():
        if part not in before:
            continue
        path, published = before[part]
        if publication_rows(publication_text(found), path) == published:
            continue
        changed = differences(found[0].get("config", {}), published[0].get("config", {}))
        raise InputError(
            "\n  ".join([f"{path} holds another {part}.", *changed])
            + "\nWhat is published is never replaced: rename the run's folder, or publish to another group with --out."
        )
    return [row for part, found in parts.items() if part not in before for row in found]


def _run_rows(run: Path, name: str) -> Iterator[Row]:
    config, provenance, result = (
        portable(read_json(run / f"{file}.json")) for file in ("config", "provenance", "result")
    )
    metrics = read_run(run).metrics
    seed = config["training"]["seed"]

    def row(table: str, made_with: Row, **columns: Any) -> Row:
        return {"table": table, "run": name, **columns, "seed": seed, "commit": made_with.get("commit")}

    def evaluation(folder: Path, result: Row) -> Iterator[Row]:
        """The result and its pairs; q, which no setting changes, once per run and only where there was a choice."""
        made_with, settings = result.get("made_with", {}), _settings_name(result)
        yield row("evaluation", made_with, settings=settings) | result
        support = result.get("support", ()) if folder == run else ()
        if (folder / "episodes.jsonl").is_file():
            for record in read_records(folder / "episodes.jsonl"):
                columns = episode_columns(record, support if len(support) > 1 else ())
                yield row("episode", made_with, settings=settings) | columns

    training = result.pop("training")
    yield row("run", provenance) | {"config": config, "provenance": provenance, "training": training}
    yield from (row("metric", provenance) | rounded(entry) for entry in _thinned_metrics(metrics))
    if latents := [entry for entry in metrics if entry.get("kind") == "latent"]:
        yield from (row("latent", provenance) | rounded(each) for each in _per_coordinate(latents[-1]))
    if "evaluated" in result:
        yield from evaluation(run, result)
    for folder in _evaluations(run):
        yield from evaluation(folder, portable(read_json(folder / "result.json")))
    for path in _measurements(run):
        if not _is_too_large(path):
            content = portable(read_json(path))
            yield row("measurement", content.get("made_with", {}), measurement=path.stem) | content


def _measurements(run: Path) -> list[Path]:
    return sorted((run / "measurements").glob("*.json"))


def _is_too_large(measurement: Path) -> bool:
    return measurement.stat().st_size > MOST_MEASUREMENT_BYTES


def _evaluations(run: Path) -> list[Path]:
    """Folders of evaluations with other settings, of the finished model only, and no repetitions of published ones."""
    found = sorted((run / "evaluations").glob("*/result.json"))
    own = {path.parent: read_json(path) for path in found if "step-" not in path.parent.name}
    return [folder for folder, result in own.items() if "evaluated" in result and "as_published" not in result]


def _settings_name(result: Row) -> str:
    """What tells an evaluation from others of its run; empty for the default settings."""
    return EvaluationSettings.of(result["evaluated"]).name()


def _date(rows: Iterable[Row]) -> str:
    """The day on which the latest of what `rows` say was started."""
    started = [
        row[name]["started"][:10]
        for row in rows
        for name in ("provenance", "made_with")
        if "started" in row.get(name, {})
    ]
    return max(started, default="undated")


def _thinned_metrics(metrics: Sequence[Row]) -> Iterable[Row]:
    """Scalars only, every n-th line of each kind counted from the last, in the order of steps."""
    kept = []
    for kind in dict.fromkeys(entry.get("kind") for entry in metrics):
        entries = [entry for entry in metrics if entry.get("kind") == kind]
        every = -(-len(entries) // MOST_TRAINING_LINES)
        kept += entries[::-1][::every]
    for entry in sorted(kept, key=lambda entry: int(entry["step"])):
        yield {name: value for name, value in entry.items() if not isinstance(value, list)}


def _per_coordinate(entry: Row) -> Iterable[Row]:
    """The vectors of `entry` that have a number per latent coordinate, side by side."""
    vectors = {name: value for name, value in entry.items() if isinstance(value, list)}
    for coordinate, values in enumerate(zip(*vectors.values(), strict=True), 1):
        yield {"coordinate": coordinate, **dict(zip(vectors, values, strict=True))}


ONLY_DRAWN = ("procrustes", "q_by_epoch")
"""What is in a record for the figure alone, and most of its bytes."""
DIGITS = 6
"""Decimals of published numbers."""


def is_study(folder: Path) -> bool:
    """Whether `folder` is one of `alewm-lab oscillator`, finished or not."""
    return isinstance(read_if_there(folder / "config.json").get("runs"), list)


def check_study_finished(folder: Path) -> None:
    """Refuses a study without its numbers or its table."""
    if not isinstance(read_if_there(folder / "result.json").get("runs"), list) or not (folder / "table.md").is_file():
        raise InputError(f"{folder} has not finished: repeat its `alewm-lab oscillator` command.")


def study_rows(folder: Path, name: str) -> Iterator[Row]:
    """Its settings and table as one row, then a row per trained model."""
    config, provenance = (portable(read_json(folder / f"{file}.json")) for file in ("config", "provenance"))
    result, commit = read_json(folder / "result.json"), provenance.get("commit")
    models = result.pop("runs")
    markdown = (folder / "table.md").read_text(encoding="utf-8")
    about = {"config": config, "provenance": provenance, "result": _rounded(result), "markdown": markdown}
    yield {"table": "study", "run": name, "commit": commit, **about}
    for model in models:
        kept = {field: value for field, value in model.items() if field not in ONLY_DRAWN}
        yield {"table": "oscillator", "run": name, "commit": commit, **_rounded(kept)}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(content) for name, content in value.items()}
    if isinstance(value, list):
        return [_rounded(content) for content in value]
    return round(value, DIGITS) if isinstance(value, float) else value
