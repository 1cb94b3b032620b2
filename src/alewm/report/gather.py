"""Run folders read into memory for a report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alewm.envs.registry import get_task, task_names
from alewm.errors import InputError
from alewm.evaluation.decoder import DECODER
from alewm.evaluation.imagination import IMAGINATION
from alewm.evaluation.settings import EVALUATIONS
from alewm.evaluation.success import EpisodeRecord, read_records
from alewm.files import inside, read_object
from alewm.runs.folder import is_number, read_metrics, require_run
from alewm.theme import Series


@dataclass(frozen=True)
class Run:
    """What one run folder holds; parts a run has not reached yet are empty."""

    name: str
    """What the report calls it."""

    folder: Path
    """Where it is."""

    config: dict[str, Any]
    """The configuration."""

    provenance: dict[str, Any]
    """The provenance."""

    metrics: list[dict[str, Any]]
    """What was measured while it ran, each entry with its `step`."""

    result: dict[str, Any]
    """The final results."""

    records: list[EpisodeRecord]
    """Evaluated episodes."""

    animations: list[Path]
    """GIFs of some of them."""

    decoder: dict[str, Any] = field(default_factory=dict)
    """What its decoder says of itself."""

    imagination: dict[str, Any] = field(default_factory=dict)
    """What it imagines of held-out windows, and how well."""

    color: int = 0
    """Its place among the runs of the report, which has a colour."""

    @property
    def method(self) -> str:
        """The method's name as papers write it; the run's where it is none of the known ones."""
        known = {"alewm": "ALeWM", "lewm": "LeWM"}
        return known.get(self.config.get("objective", {}).get("method", ""), self.name)

    @property
    def is_evaluation(self) -> bool:
        """Whether it is an evaluation of a run with other settings."""
        return self.folder.resolve().parent.name == EVALUATIONS

    def picture(self, place: str) -> bytes:
        """The picture at `place` in its folder."""
        return inside(self.folder / place, self.folder).read_bytes()

    @property
    def data_note(self) -> str:
        """What every caption must say about its data: where `alewm collect` recorded them, of most tasks nothing."""
        if "imported_from" in self.config:
            return "Imported weights, which may have been trained on the episodes held out here."
        task, made_with = self.config.get("task"), self.provenance.get("data", {}).get("made_with")
        return get_task(task).note_on(made_with) if task in task_names() else ""

    def scalars(self) -> dict[str, Series]:
        """Every scalar metric over steps, by name; entries that are not finite numbers are left out.

        What was measured on held-out windows has the same names as in training, and `validation/` before them.
        """
        found: dict[str, Series] = {}
        for entry in self.metrics:
            prefix = "validation/" if entry.get("kind") == "validation" else ""
            for name, value in entry.items():
                if name != "step" and is_number(value):
                    steps, values = found.setdefault(prefix + name, ([], []))
                    steps.append(float(entry["step"]))
                    values.append(float(value))
        return found

    def latest(self, name: str) -> Any:
        """The value called `name` in the result, or else the last one among the metrics; None if there is neither."""
        if name in self.result:
            return self.result[name]
        return next((entry[name] for entry in reversed(self.metrics) if name in entry), None)

    def capacity_dynamics(self) -> dict[str, dict[int, Series]]:
        """Mean q per capacity over steps, from metrics called `q/8` or, per data set, `q/two-room/8`."""
        groups: dict[str, dict[int, Series]] = {}
        for name, series in self.scalars().items():
            parts = name.split("/")
            if parts[0] == "q" and len(parts) > 1 and parts[-1].isdigit():
                groups.setdefault("/".join(parts[1:-1]), {})[int(parts[-1])] = series
        return {group: dict(sorted(curves.items())) for group, curves in sorted(groups.items())}


def read_run(folder: Path, name: str | None = None, color: int = 0) -> Run:
    """The run in `folder`, checked to be one."""
    require_run(folder)
    records = folder / "episodes.jsonl"
    return Run(
        name or folder.resolve().name,
        folder,
        _read_if_there(folder / "config.json"),
        _read_if_there(folder / "provenance.json"),
        read_metrics(folder / "metrics.jsonl"),
        _read_if_there(folder / "result.json"),
        read_records(records) if records.is_file() else [],
        [inside(path, folder) for path in sorted((folder / "animations").glob("*.gif"))],
        _read_if_there(folder / DECODER / "decoder.json"),
        _read_if_there(folder / IMAGINATION / "imagination.json"),
        color,
    )


def read_runs(folders: list[Path]) -> list[Run]:
    """The runs in `folders`, named so that no two have the same name."""
    if not folders:
        raise InputError("A report needs at least one run folder.")
    resolved = [folder.resolve() for folder in folders]
    if len(set(resolved)) != len(resolved):
        raise InputError("The same run folder is named twice.")
    short = [folder.name for folder in resolved]
    names = [n if short.count(n) == 1 else f"{_whose(f)}/{n}" for f, n in zip(resolved, short, strict=True)]
    return [read_run(folder, name, i) for i, (folder, name) in enumerate(zip(folders, names, strict=True))]


def with_evaluations(folders: Sequence[Path]) -> list[Path]:
    """`folders`, each run followed by its evaluations with other settings, unless those are named already."""
    named = {folder.resolve() for folder in folders}
    found = []
    for folder in folders:
        found.append(folder)
        results = sorted(path.parent for path in folder.glob(f"{EVALUATIONS}/*/result.json"))
        found += [each for each in results if (each / "config.json").is_file() and each.resolve() not in named]
    return found


def _whose(folder: Path) -> str:
    """What tells a folder from others of its name: the run it evaluates, or else the folder it is in."""
    return folder.parents[1].name if folder.parent.name == EVALUATIONS else folder.parent.name


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and leaves of a nested mapping."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _read_if_there(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}
