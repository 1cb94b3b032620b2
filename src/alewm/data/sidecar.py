"""Small JSON files beside a data file: what is decided once per file and read by everyone afterwards."""

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alewm.config import ConfigType, from_dict
from alewm.errors import InputError
from alewm.files import parse_json, write_text


def beside(data_path: str | Path, kind: str) -> Path:
    """The path of the sidecar `kind` of a data file: `two-room.h5` has `two-room.splits.json`."""
    data_path = Path(data_path)
    return data_path.with_name(f"{data_path.stem}.{kind}.json")


def write_sidecar(path: Path, values: dict[str, Any]) -> None:
    """Write `values` to `path` in one step, so that no reader ever sees half of them."""
    write_text(path, json.dumps(values, indent=1) + "\n")


@contextmanager
def kept_beside(data_path: Path) -> Iterator[None]:
    """Turn a failed write of a sidecar into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise InputError(
            f"The folder of {data_path} cannot be written, and what is decided once about a data file is kept beside "
            f"it. Make a link to the file in a folder of your own (ln -s) and give that as --data."
        ) from None


def read_sidecar(path: Path, fields: tuple[str, ...]) -> dict[str, Any]:
    """The object in `path`, checked to have `fields`."""
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}); delete it to have it made anew.") from None
    found: dict[str, Any] = values if isinstance(values, dict) else {}
    if missing := [field for field in fields if field not in found]:
        raise InputError(f"{path} lacks {', '.join(missing)}; delete it to have it made anew.")
    return found


def read_config_sidecar(path: Path, kind: type[ConfigType], fields: tuple[str, ...]) -> ConfigType:
    """The object in `path`, with at least `fields`, as a `kind`."""
    values = read_sidecar(path, fields)
    try:
        return from_dict(kind, values)
    except InputError as error:
        raise InputError(f"{path}: {error} Delete the file to have it made anew.") from None


def check_fingerprint(path: Path, found: str, expected: str, data_path: str | Path) -> None:
    """Refuse a sidecar that was made for other data."""
    if found != expected:
        raise InputError(
            f"{path} was made for data with fingerprint {found}, but {data_path} has {expected}. "
            f"Restore the data file it belongs to, or delete {path} to have it made anew."
        )
