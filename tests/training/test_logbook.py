"""Metrics survive a cut line and a step back."""

import errno
import json
from pathlib import Path

import pytest
import torch

from alewm.errors import InputError
from alewm.training.metrics import Logbook, RunningMeans


@pytest.mark.parametrize("end", [b'{"step": 8, "lo', b"\xff\xfe\x00", b"\0\0\0\0\n", b"8\n"])
def test_rewinding_drops_later_steps_and_a_cut_line(tmp_path, end):
    book = Logbook(tmp_path / "metrics.jsonl")
    for step in (2, 4, 6):
        book.append({"step": step, "kind": "train", "loss": step / 2})
    with book.path.open("ab") as file:
        file.write(end)
    assert book.latest() == {"train/loss": 3.0}
    book.rewind(4)
    assert [json.loads(line)["step"] for line in book.path.read_text().splitlines()] == [2, 4]
    assert book.latest() == {"train/loss": 2.0}


def test_a_line_that_lacks_its_end_is_kept_and_given_one(tmp_path):
    book = Logbook(tmp_path / "metrics.jsonl")
    book.path.write_text('{"step": 2}\n{"step": 4}')
    book.rewind(4)
    book.append({"step": 6})
    assert [json.loads(line)["step"] for line in book.path.read_text().splitlines()] == [2, 4, 6]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_foreign_line_is_refused_by_number(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\nhello\n{"step": 2}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2: expected a JSON object"):
        Logbook(path).rewind(1)
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2, is not JSON"):
        Logbook(path).latest()
    assert path.read_text().count("\n") == 3


def test_means_are_taken_over_the_steps_since_the_last_look():
    means = RunningMeans()
    for value in (1.0, 3.0):
        means.add({"loss": torch.tensor(value), "q": torch.tensor([value, 0.0])})
    assert means.take() == {"loss": 2.0, "q": [2.0, 0.0]}
    means.add({"loss": torch.tensor(7.0), "q": torch.tensor([0.5, 0.5])})
    assert means.take() == {"loss": 7.0, "q": [0.5, 0.5]}
    assert means.take() == {}


def test_a_full_disk_names_the_file():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'") as caught:
        Logbook(Path("/dev/full")).append({"step": 1})
    assert caught.value.errno == errno.ENOSPC
