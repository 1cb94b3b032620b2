"""The small part of a finished run that is worth keeping in a repository: what its numbers can be checked with.

    config.json  provenance.json                what was asked, and where it ran, without that machine's folders
    result.json  episodes.csv                   the evaluation with default settings, episode by episode
    metrics.csv                                 losses and q per capacity while training, thinned
    latent.csv                                  variance of each latent coordinate at the end
    evaluations/SETTINGS/result.json, episodes.csv   evaluations with other settings
    measurements/NAME.json                      what experiments measured on the model

No weights, no frames, no actions.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from alewm.config import differences
from alewm.errors import InputError
from alewm.evaluation.records import EpisodeRecord, read_records
from alewm.files import read_if_there, read_json, write_json, write_text
from alewm.reports.columns import csv_text
from alewm.reports.gather import read_run
from alewm.reports.publish_study import check_study_finished, is_study, publish_study
from alewm.runs.portable import portable
from alewm.runs.provenance import clean_commit

MOST_TRAINING_LINES = 100
"""Lines of metrics kept per kind; of longer logs every n-th, the last always."""
MOST_MEASUREMENT_BYTES = 200_000
"""Larger measurements are left out, and named."""

Columns = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Published:
    """Where runs were published, and how large that is."""

    folders: tuple[Path, ...]
    num_bytes: int
    left_out: tuple[Path, ...]
    """Measurements too large to be published."""


def publish_runs(runs: Sequence[Path], out: Path, *, allow_changes: bool = False) -> Published:
    """Every one of `runs` published to a folder of its name below `out`; repeating it changes nothing.

    All are checked before anything is written: unfinished runs, runs without an evaluation and folders that hold
    another run are refused; so are, unless `allow_changes`, numbers from code that no commit has.
    """
    names = [run.resolve().name for run in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"Two of the runs are called {', '.join(twice)}; rename a folder, or publish them apart.")
    for run, name in zip(runs, names, strict=True):
        _check_finished(run)
        if not allow_changes:
            _check_commits(run)
        _check_place(run, out / name)
    left_out = [path for run, name in zip(runs, names, strict=True) for path in _publish(run, out / name)]
    folders = tuple(out / name for name in names)
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return Published(folders, sum(path.stat().st_size for path in files), tuple(left_out))


def episode_columns(record: EpisodeRecord, support: Sequence[int] = ()) -> Columns:
    """One evaluated pair as a row: its outcome, how far it was from the goal at first and at last, q over `support`."""
    values = dataclasses.asdict(record)
    distances, costs, q = values.pop("distances"), values.pop("predicted_costs"), values.pop("q")
    if record.replay_success is None:
        del values["replay_success"]
    values |= {"first_distance": distances[0], "last_distance": distances[-1], "first_predicted_cost": costs[0]}
    return values | {f"q/{k}": share for k, share in zip(support, q, strict=False)}


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
    results = [run / "result.json", *(folder / "result.json" for folder in _evaluations(run))]
    results += sorted((run / "measurements").glob("*.json"))
    made_with = {path: read_if_there(path).get("made_with") for path in results}
    made_with = {run / "provenance.json": read_json(run / "provenance.json")} | made_with
    for path, made in made_with.items():
        if made is not None and clean_commit(made) is None:
            raise InputError(
                f"{path} comes from code that no commit has (its commit is {made.get('commit') or 'unknown'}), so its "
                f"numbers cannot be repeated. Make it again from a clean commit, or publish it with --allow-changes."
            )


def _check_place(run: Path, place: Path) -> None:
    # Hidden files are drafts of a command that was stopped, or a file manager's.
    if not place.exists() or all(path.name.startswith(".") for path in place.iterdir()):
        return
    if not (place / "config.json").is_file():
        raise InputError(f"{place} is not empty and holds no published run. Give another folder with --out.")
    if changed := differences(read_json(run / "config.json"), read_json(place / "config.json")):
        raise InputError(
            f"{place} holds another run:\n  "
            + "\n  ".join(changed)
            + "\nRename the run's folder, or give another --out."
        )


def _publish(run: Path, place: Path) -> list[Path]:
    if is_study(run):
        publish_study(run, place)
        return []
    for name in ("config.json", "provenance.json"):
        write_json(place / name, portable(read_json(run / name)))
    _publish_evaluation(run, place, with_q=True)
    for folder in _evaluations(run):
        _publish_evaluation(folder, place / "evaluations" / folder.name, with_q=False)
    metrics = read_run(run).metrics
    write_text(place / "metrics.csv", csv_text(_thinned_metrics(metrics)))
    if latents := [entry for entry in metrics if entry.get("kind") == "latent"]:
        write_text(place / "latent.csv", csv_text(_per_coordinate(latents[-1])))
    left_out = []
    for path in sorted((run / "measurements").glob("*.json")):
        if path.stat().st_size > MOST_MEASUREMENT_BYTES:
            left_out.append(path)
        else:
            write_json(place / "measurements" / path.name, portable(read_json(path)))
    return left_out


def _publish_evaluation(folder: Path, place: Path, *, with_q: bool) -> None:
    """Its result and episodes; q, which no setting changes, once per run and only where there was a choice."""
    result = read_json(folder / "result.json")
    write_json(place / "result.json", portable(result))
    if (folder / "episodes.jsonl").is_file():
        support = result.get("support", ()) if with_q else ()
        records = read_records(folder / "episodes.jsonl")
        rows = (episode_columns(record, support if len(support) > 1 else ()) for record in records)
        write_text(place / "episodes.csv", csv_text(rows))


def _evaluations(run: Path) -> list[Path]:
    """Folders of evaluations with other settings, of the finished model only, and no repetitions of published ones."""
    found = sorted((run / "evaluations").glob("*/result.json"))
    own = [path.parent for path in found if "step-" not in path.parent.name]
    return [folder for folder in own if "as_published" not in read_json(folder / "result.json")]


def _thinned_metrics(metrics: Sequence[Columns]) -> Iterable[Columns]:
    """Scalars only, every n-th line of each kind counted from the last, in the order of steps."""
    kept = []
    for kind in dict.fromkeys(entry.get("kind") for entry in metrics):
        entries = [entry for entry in metrics if entry.get("kind") == kind]
        every = -(-len(entries) // MOST_TRAINING_LINES)
        kept += entries[::-1][::every]
    for entry in sorted(kept, key=lambda entry: int(entry["step"])):
        yield {name: value for name, value in entry.items() if not isinstance(value, list)}


def _per_coordinate(entry: Columns) -> Iterable[Columns]:
    """The vectors of `entry` that have a number per latent coordinate, side by side."""
    vectors = {name: value for name, value in entry.items() if isinstance(value, list)}
    for coordinate, values in enumerate(zip(*vectors.values(), strict=True), 1):
        yield {"coordinate": coordinate, **dict(zip(vectors, values, strict=True))}
