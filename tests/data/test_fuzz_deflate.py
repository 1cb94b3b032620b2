"""A decoder of bytes from outside must stand any bytes. `FUZZ_ROUNDS=50` runs this for half a million streams."""

import json
from pathlib import Path

from address_sanitizer import FUZZ_ROUNDS, run_with_address_sanitizer


def test_damaged_streams_are_decoded_as_by_zlib_without_touching_other_memory() -> None:
    script = Path(__file__).with_name("fuzz_deflate.py")
    told = json.loads(run_with_address_sanitizer(script, "0", str(10_000 * FUZZ_ROUNDS)))
    problems = ["impossible header", "impossible set of codes", "stands for nothing", "before the beginning"]
    problems += ["incomplete", "more bytes", "fewer bytes", "checksum", "not a zlib stream", "no problem", "whole"]
    for problem in problems:  # the damage must reach every part of the decoder
        assert sum(times for name, times in told.items() if problem in name) >= 50, (problem, told)
