"""Runs a Python script whose C libraries are built with AddressSanitizer, which ends it at the first bad access."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

FLAGS = ("-fsanitize=address", "-fno-omit-frame-pointer", "-g")
"""What a script adds to the flags of the library that it tests."""

FUZZ_ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "1"))
"""How many times as long as in `make test` a fuzz test runs."""


def run_with_address_sanitizer(script: Path, *arguments: str) -> str:
    """What `script` prints; an AssertionError quotes it if it fails, and names a part of the compiler that is missing.

    The sanitizer must be the first library of the process. Python and torch leak on purpose, so leaks do not count.
    """
    compiler = shutil.which("gcc")
    assert compiler, "gcc is missing: install it, or AddressSanitizer cannot test the C libraries"
    libraries = []
    for name in (
        "libasan.so",
        "libstdc++.so.6",
    ):  # exceptions of C++ pass through the sanitizer, which looks for theirs
        found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        library = Path(found.stdout.strip())
        assert library.is_absolute(), f"{name} is missing: install it (Debian: libasan8 and libstdc++6)"
        libraries.append(str(library.resolve()))
    environment = os.environ | {
        "CC": compiler,
        "LD_PRELOAD": ":".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent), *sys.path])),
    }
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout[-3000:] + done.stderr[:6000]
    assert done.returncode == 0, f"{script.name} ended with {done.returncode}:\n{said}"
    return done.stdout
