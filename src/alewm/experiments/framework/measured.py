"""What was measured on a trained model, kept in its run folder with the settings it was measured with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alewm.files import read_if_there, write_json
from alewm.runs.provenance import provenance


def measurement_path(run: Path, name: str) -> Path:
    """The file of the measurement called `name`."""
    return run / "measurements" / f"{name}.json"


def read_measurement(run: Path, name: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was found with these options, or None where nobody measured it with them."""
    found = read_if_there(measurement_path(run, name))
    return found["measured"] if found.get("options") == _plain(options) else None


def write_measurement(run: Path, name: str, options: Mapping[str, Any], measured: dict[str, Any]) -> Path:
    """Keeps what was found, in place of what other options found before; the file."""
    path = measurement_path(run, name)
    write_json(path, {"options": _plain(options), "measured": measured, "made_with": provenance()})
    return path


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
