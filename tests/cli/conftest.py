"""The command line as a person meets it: real subprocesses."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def alewm(tmp_path):
    """Runs `alewm ...` in a fresh folder and returns the finished process."""

    def run(*arguments, check=True, timeout=300, **environment):
        done = subprocess.run(
            [sys.executable, "-m", "alewm", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run
