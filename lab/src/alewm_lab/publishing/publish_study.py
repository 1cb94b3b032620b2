"""The part of an oscillator study that is worth keeping: its numbers, without the points and curves of figures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alewm.errors import InputError
from alewm.files import read_if_there, read_json
from alewm.runs.provenance import portable
from alewm_lab.publishing.publication import Row

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
