"""Every benchmark ends in a line of JSON with what it measured."""

import json

import pytest
from conftest import IMAGE_SIZE

TINY = ("--preset", "two-room-tiny", "--device", "cpu")
FEW = ("--candidates", 10, "--iterations", 1)


@pytest.mark.parametrize(
    ("arguments", "measured"),
    [
        (("collect", "--episodes", 2, "--image-size", IMAGE_SIZE, "--jobs", 1), "stored_frames_per_second"),
        (("floors", "--task", "reacher", "--episodes", 8), "recorded_actions"),
        (("loader", "--episodes", 2, "--image-size", IMAGE_SIZE, "--batch", 8, "--batches", 2), "windows_per_second"),
        (("train-step", *TINY, "--batch", 8, "--repeats", 1), "milliseconds"),
        (("planner", *TINY, "--episodes", 1, *FEW, "--repeats", 1), "milliseconds_by_capacity"),
        (("evaluate", *TINY, "--episodes", 2, *FEW), "seconds_planning"),
    ],
)
def test_a_benchmark_ends_in_a_line_of_json(alewm_here, arguments, measured):
    line = json.loads(alewm_here("bench", *arguments).splitlines()[-1])
    assert line["bench"] == arguments[0]
    assert line[measured]
    assert line["made_with"]["command"].startswith("alewm bench")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("loader", "--data", "missing.h5"), "missing.h5 does not exist"),
        (("train-step", *TINY, "--compile"), "Compiling needs a GPU"),
        (("planner", "--preset", "two-room-tinny"), "Did you mean 'two-room-tiny'?"),
        (("evaluate", "--preset", "push-t-192"), "preset of two-room"),
    ],
)
def test_bad_input_gets_a_message(refused, arguments, message):
    assert message in refused("bench", *arguments)
