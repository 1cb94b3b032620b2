"""What the command line does with its own output."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("arguments", [("--help",), ("train", "--list")])
def test_a_reader_that_goes_away_is_no_error(arguments):
    """`alewm ... | head` with a head that has seen enough before the first line."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "alewm", *arguments], stdout=gone, stderr=subprocess.PIPE, text=True, check=False
        )
    assert "Traceback" not in done.stderr
    assert done.stderr.strip() == ""
