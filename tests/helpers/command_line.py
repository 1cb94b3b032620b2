"""The command line as a person meets it: real subprocesses, and small runs that the tests share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import alewm.cli.main
import alewm_lab.cli.main
from alewm.training.presets import preset

IMAGE_SIZE = preset("two-room-tiny").model.encoder.image_size
COLLECT = ("collect", "two-room", "--episodes", 16, "--image-size", IMAGE_SIZE, "--jobs", 1)
TRAIN = ("train", "two-room-tiny", "--steps", 40, "--batch-size", 16, "--checkpoint-every", 4, "--log-every", 1)
SEARCH = ("--candidates", 20, "--iterations", 2)
HELD = str(Path(__file__).with_name("held_alewm.py"))
"""Run in place of `-m alewm`: training that waits to be interrupted."""


LAB_VERBS = ("experiment", "cell", "oscillator", "bench", "publish", "results")


def package_of(arguments):
    """The package whose command has the verb that `arguments` begin with."""
    return "alewm_lab" if arguments[:1] and arguments[0] in LAB_VERBS else "alewm"


def main(arguments):
    """Runs the command in this process."""
    (alewm_lab if package_of(arguments) == "alewm_lab" else alewm).cli.main.main()


def run_alewm(folder, *arguments, check=True, launcher=None, **environment):
    """`alewm ...` or `alewm-lab ...` in `folder`, finished."""
    done = subprocess.run(
        [sys.executable, *(launcher or ("-m", package_of(arguments))), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(name="alewm")
def alewm_in_a_folder(tmp_path):
    """Runs `alewm ...` in a fresh folder and returns the finished process."""

    def run(*arguments, **options):
        return run_alewm(tmp_path, *arguments, **options)

    return run


@pytest.fixture
def alewm_here(tmp_path, monkeypatch, capsys):
    """Runs `alewm ...` in this process, which spares loading torch again; what it printed."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [package_of(arguments).replace("_", "-"), *map(str, arguments)])
        main(arguments)
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Runs `alewm ...` in this process, in a fresh folder; what it says when it refuses, with status 2."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [package_of(arguments).replace("_", "-"), *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        assert exit_.value.code == 2
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return said.err

    return run


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, to compare before and after."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A file of sixteen Two-Room episodes."""
    folder = tmp_path_factory.mktemp("data")
    done = run_alewm(folder, *COLLECT, "--out", "two-room.h5")
    assert done.stdout.splitlines()[-1] == "two-room.h5"
    assert "frames/s" in done.stdout
    return folder / "two-room.h5"


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """A run that was trained without interruption; tests that write work on copies."""
    folder = tmp_path_factory.mktemp("trained")
    done = run_alewm(folder, *TRAIN, "--data", data, "--out", "run")
    assert done.stdout.splitlines()[-1] == "run"
    return folder / "run"
