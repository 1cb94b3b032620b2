"""Every benchmark ends in a line of JSON with what it measured."""

import json

import pytest
from conftest import IMAGE_SIZE

TINY = ("--preset", "two-room-tiny", "--device", "cpu")
FEW = ("--candidates", 10, "--iterations", 1)
SMALL_SIZES = (
    *(*FEW, "--episodes", 1, 2, "--batches", 8, "--repeats", 1),
    *("--presets", "two-room-tiny", "--projections", 4, 8, "--out", "scaling.png"),
)


@pytest.mark.parametrize(
    ("arguments", "measured"),
    [
        (("collect", "--episodes", 2, "--image-size", IMAGE_SIZE, "--jobs", 1), "stored_frames_per_second"),
        (("loader", "--episodes", 2, "--image-size", IMAGE_SIZE, "--batch", 8, "--batches", 2), "windows_per_second"),
        (("train-step", *TINY, "--batch", 8, "--repeats", 1, "--reference"), "milliseconds"),
        (("planner", *TINY, "--episodes", 1, *FEW, "--repeats", 1, "--reference"), "milliseconds_by_capacity"),
        (("evaluate", *TINY, "--episodes", 2, *FEW), "seconds_planning"),
        (("scaling", *TINY, *SMALL_SIZES), "panels"),
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
        (("train-step", *TINY, "--acceleration", "compile"), "Updates cannot be compiled: the device is a cpu"),
        (("train-step", *TINY, "--batch", 8, "--repeats", 1, "--profile"), "A profile of kernels needs a GPU"),
        (("planner", *TINY, "--capacities", 5), "5"),
        (("planner", "--preset", "two-room-tinny"), "Did you mean 'two-room-tiny'?"),
        (("evaluate", "--preset", "push-t-192"), "preset of two-room"),
        (("check", "--device", "cpu"), "The fast paths checked here are those of a GPU"),
    ],
)
def test_bad_input_gets_a_message(refused, arguments, message):
    assert message in refused("bench", *arguments)
