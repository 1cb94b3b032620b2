"""The measurements of a run, line by line, as a run that was killed may have left them."""

import json
import math
from pathlib import Path
from typing import Any

from alewm.errors import InputError


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, none where there is no file; a last line that cannot be read is left out."""
    lines = path.read_bytes().splitlines() if path.is_file() else []
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(_entry(path, number, line))
        except InputError:
            if number < len(lines):
                raise
            # A run that is being written, or was killed, may end in half a line.
    return entries


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _entry(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line.decode())
    except ValueError as error:
        raise InputError(f"{path}, line {number}, is not JSON: {error}") from error
    if not isinstance(entry, dict) or not is_number(entry.get("step")):
        found = line[:80].decode(errors="replace")
        raise InputError(f"{path}, line {number}: expected a JSON object with a numeric `step`, found {found}")
    return entry
