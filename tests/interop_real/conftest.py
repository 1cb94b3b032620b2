"""What the checks against real packages share: shipped models, overlays of other versions, and a table at the end.

`make interop` runs them in an environment of its own. Their files are named `check_*.py`, so that `make test` does not
collect them.
"""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OVERLAYS = Path(sys.prefix) / "overlays"
"""Folders of packages in other versions than the environment's, made by `make interop`."""

_TABLE = []


@pytest.fixture
def found():
    """Adds a row to the table: the bridge, the versions and what came out."""

    def add(bridge, packages, outcome):
        _TABLE.append(
            (bridge, ", ".join(package if " " in package else versioned(package) for package in packages), outcome)
        )

    return add


def versioned(package):
    return f"{package} {metadata.version(package)}"


@pytest.fixture(scope="session")
def overlay_folder():
    """The PYTHONPATH under which packages have other versions; without a name, those of the environment."""

    def path_of(overlay=""):
        folders = [OVERLAYS / overlay] if overlay else []
        return os.pathsep.join(map(str, [*folders, ROOT / "tests/helpers", ROOT / "tests/interop_real"]))

    return path_of


@pytest.fixture
def with_overlay(overlay_folder):
    """Runs a script of this folder where one package has another version; what its last line says, as JSON."""

    def run(overlay, script, *arguments):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(ROOT / "tests/interop_real" / script), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": overlay_folder(overlay)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="session")
def shipped():
    """Folders of the models in this repository."""
    return {name: ROOT / "pretrained" / name for name in ("two-room-tiny", "two-room-tiny-lewm")}


def pytest_terminal_summary(terminalreporter):
    if _TABLE:
        terminalreporter.write_line("\n| bridge | versions | outcome |\n|---|---|---|")
        for row in _TABLE:
            terminalreporter.write_line("| " + " | ".join(row) + " |")
