"""`alewm collect`: the same bytes however many processes, and what it refuses."""

import pytest
from conftest import COLLECT

from alewm.data.store import EpisodeStore


def test_two_processes_write_the_bytes_of_one(alewm, data, tmp_path):
    done = alewm(*COLLECT[:-1], 2, "--out", "deep/inside/again.h5")
    assert done.stdout.splitlines()[-1] == "deep/inside/again.h5"
    assert (tmp_path / "deep/inside/again.h5").read_bytes() == data.read_bytes()
    with EpisodeStore.open(data) as store:
        assert store.num_episodes == 16
        assert store.attributes["task"] == "two-room"


def test_a_complete_file_is_left_alone_and_another_seed_is_refused(refused, alewm_here, data):
    before = data.stat().st_mtime_ns
    assert "complete already" in alewm_here(*COLLECT, "--out", data)
    assert "seed 0 instead of 1" in refused(*COLLECT, "--seed", 1, "--out", data)
    assert data.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two-rooms",), "Did you mean 'two-room'?"),
        (("two-room", "--image-size", 300), "image size must be an integer from 1 to 224"),
        (("two-room", "--episodes", 0), "1 episode or more"),
        (("two-room", "--seed", -1), "seed of 0 or more"),
        (("two-room", "--jobs", -1), "--jobs"),
        (("two-room", "--max-steps", 101), "--max-steps is from 1 to the 100 steps of two-room"),
        (("two-room", "--behaviour", "noisy"), "Unknown behaviour of two-room 'noisy'. Known: noisy-heuristic."),
    ],
)
def test_bad_input_gets_a_message_and_leaves_nothing(refused, tmp_path, arguments, message):
    assert message in refused("collect", *arguments, "--out", "new/file.h5")
    assert not (tmp_path / "new").exists()
