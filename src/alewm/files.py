"""Writing so that a kill never leaves half a file, and reading so that a damaged one is named."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from alewm.errors import InputError


def write_text(path: Path, text: str) -> None:
    """Replaces `path` by `text` in one step: readers see the old file or the new one, never a part."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces `path` by `content` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(fresh).chmod(0o644)
        Path(fresh).replace(path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """`value` as indented JSON; NaN and infinities are refused, since JSON has none."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The JSON value in `path`; a damaged file gets a message that names it and the place."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from error


def read_if_there(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, an empty one before it has been written; a damaged file is named as by `read_json`."""
    found = read_json(path) if path.is_file() else {}
    if not isinstance(found, dict):
        raise _damaged(path, f"a JSON object was expected, found {type(found).__name__}")
    return found


def _damaged(path: Path, problem: object) -> InputError:
    return InputError(
        f"{path} is damaged: {problem}. Nothing was changed. Remove the file to have it computed again, or restore it "
        f"from a copy."
    )


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, which nothing computes again; anything else is refused."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold a JSON object, found {type(found).__name__}.")
    return found


def check_new_folder(folder: Path) -> None:
    """Refuses a folder that is in use; nothing in it is touched."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already and is not empty. Give a new folder.")


def append_json_line(path: Path, value: dict[str, Any]) -> None:
    """Adds one line of JSON, whole or not at all as far as the system allows."""
    with path.open("a") as file:
        file.write(json.dumps(value, allow_nan=False) + "\n")
