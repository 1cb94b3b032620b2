"""The packages that only conversion needs, loaded when they are."""

import importlib
from pathlib import Path
from typing import Any

from alewm.errors import InputError

CONVERT_INSTALL = "pip install 'alewm[convert]'"


def required(module: str, path: Path) -> Any:
    """The imported `module`, which reading `path` needs; if it is not installed, the line that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InputError(
            f"Reading {path} needs the package {package!r}, which is not installed. Install it: {CONVERT_INSTALL}"
        ) from None
