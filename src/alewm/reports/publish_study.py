"""The part of an oscillator study that is worth keeping: its numbers, without the points and curves of figures."""

from pathlib import Path
from typing import Any

from alewm.errors import InputError
from alewm.files import read_if_there, read_json, write_json, write_text
from alewm.runs.portable import portable

ONLY_DRAWN = ("procrustes", "q_by_epoch")
"""What is in a record for the figure alone, and most of its bytes."""
DIGITS = 6
"""Decimals of published numbers."""


def is_study(folder: Path) -> bool:
    """Whether `folder` is one of `alewm oscillator`, finished or not."""
    return isinstance(read_if_there(folder / "config.json").get("runs"), list)


def published_studies(results: Path) -> list[Path]:
    """The studies directly below `results`, or in folders there, as runs are; by name."""
    tables = [*results.glob("*/table.md"), *results.glob("*/*/table.md")]
    return sorted((path.parent for path in tables if is_study(path.parent)), key=lambda folder: folder.name)


def check_study_finished(folder: Path) -> None:
    """Refuses a study without its numbers or its table."""
    if not isinstance(read_if_there(folder / "result.json").get("runs"), list) or not (folder / "table.md").is_file():
        raise InputError(f"{folder} has not finished: repeat its `alewm oscillator` command.")


def publish_study(folder: Path, place: Path) -> None:
    """Copies its settings, numbers and table to `place`."""
    for name in ("config.json", "provenance.json"):
        write_json(place / name, portable(read_json(folder / name)))
    result = read_json(folder / "result.json")
    records = [{name: value for name, value in each.items() if name not in ONLY_DRAWN} for each in result["runs"]]
    write_json(place / "result.json", _rounded({**result, "runs": records}))
    write_text(place / "table.md", (folder / "table.md").read_text(encoding="utf-8"))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(content) for name, content in value.items()}
    if isinstance(value, list):
        return [_rounded(content) for content in value]
    return round(value, DIGITS) if isinstance(value, float) else value
