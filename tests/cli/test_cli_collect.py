"""`alewm collect`: the same bytes however many processes, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from alewm.data.store import EpisodeStore
from command_line import COLLECT, SEARCH
from human_demonstrations import demonstrations, write_zarr, zipped


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


@pytest.mark.parametrize("seconds", [0.05, 0.4, 1.0])
def test_an_interrupt_while_processes_are_starting_is_one_line(tmp_path, seconds):
    """A terminal interrupts all processes at once, also the one that is busy importing for the others."""
    command = (*COLLECT[:2], "--jobs", 2, "--out", "a.h5")
    process = subprocess.Popen(
        [sys.executable, "-m", "alewm", *map(str, command)],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "a.h5.journal").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()  # until the last process that could say something is gone
    assert said.splitlines()[-1] == "alewm: interrupted. What was finished is kept; repeat the command to continue."
    assert "Traceback" not in said
    assert process.returncode == 130


def test_simulated_worlds_are_drawn_alike_in_every_process(alewm, refused, tmp_path):
    """Each process has an OpenGL context of its own, with the back end that the first one chose."""
    settings = ("collect", "reacher", "--episodes", 3, "--max-steps", 2, "--image-size", 56)
    for jobs in (1, 2):
        alewm(*settings, "--jobs", jobs, "--out", f"{jobs}.h5")
    assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "2.h5").read_bytes()
    with EpisodeStore.open(tmp_path / "1.h5") as store:
        assert store.attributes["max_steps"] == 2
        assert store.num_rows == 9
    without = [each for each in settings if each not in ("--max-steps", 2)]
    assert "max_steps 2 instead of None" in refused(*without, "--out", tmp_path / "1.h5")


def test_a_file_says_which_of_several_behaviours_made_it(alewm_here, refused, tmp_path):
    settings = ("collect", "cube", "--episodes", 1, "--max-steps", 1, "--image-size", 56, "--jobs", 1)
    file = tmp_path / "cube.h5"
    alewm_here(*settings, "--behaviour", "new-goals", "--out", file)
    with EpisodeStore.open(file) as store:
        assert store.attributes["behaviour"] == "new-goals"
    assert "behaviour 'new-goals' instead of 'one-goal'" in refused(*settings, "--out", file)


def test_one_of_five_steps_is_drawn_and_learned_from(alewm_here, refused, tmp_path):
    settings = (*COLLECT, "--draw-every", 5)
    assert "frames/s" in alewm_here(*settings, "--out", "thin.h5")
    with EpisodeStore.open(tmp_path / "thin.h5") as store:
        num_windows = len(store.windows(range(16)))
        assert store.pixels.id.get_num_chunks() == sum(-(-length // 5) for length in store.lengths)
    described = alewm_here("inspect", "thin.h5")
    assert f"{num_windows:,} training windows" in described
    assert "draw_every: 5" in described
    few = ("--steps", 2, "--batch-size", 8, "--device", "cpu")
    alewm_here("train", "two-room-tiny", "--data", "thin.h5", "--out", "run", *few)
    alewm_here("evaluate", "run", "--data", "thin.h5", *SEARCH, "--device", "cpu")
    made_with = json.loads((tmp_path / "run/provenance.json").read_text())["data"]["made_with"]
    assert made_with.endswith("--draw-every 5 --out thin.h5")
    assert "with draw_every 5 instead of 1. Delete it" in refused(*COLLECT, "--out", "thin.h5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two-rooms",), "Did you mean 'two-room'?"),
        (("two-room", "--image-size", 300), "the image size is an integer from 1 to 224"),
        (("two-room", "--episodes", 0), "--episodes must be at least 1, got"),
        (("two-room", "--seed", -1), "--seed must not be negative, got -1"),
        (("two-room", "--jobs", -1), "--jobs"),
        (("two-room", "--max-steps", 101), "--max-steps is from 1 to the 100 steps of two-room"),
        (("two-room", "--draw-every", 0), "--draw-every is 1 or 5"),
        (("two-room", "--draw-every", 2), "--draw-every is 1 or 5: windows have frames 5 steps apart; got 2."),
        (("two-room", "--behaviour", "noisy"), "Unknown behaviour of two-room 'noisy'. Known: noisy-heuristic."),
    ],
)
def test_bad_input_gets_a_message_and_leaves_nothing(refused, tmp_path, arguments, message):
    assert message in refused("collect", *arguments, "--out", "new/file.h5")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("inside", ["x.h5", "deeper/x.h5"])
def test_a_file_where_a_folder_is_needed_is_named(refused, tmp_path, inside):
    (tmp_path / "taken.h5").touch()
    said = refused(*COLLECT, "--out", f"taken.h5/{inside}")
    assert said == "alewm: taken.h5 is a file, where a folder is needed. Choose another path, or move the file away.\n"


@pytest.fixture(scope="module")
def human(tmp_path_factory):
    """A zip of human demonstrations of Push-T, as people download it."""
    folder = tmp_path_factory.mktemp("human")
    return zipped(write_zarr(folder, demonstrations()), folder / "pusht.zip")


def test_human_demonstrations_become_a_file_of_copies(alewm, alewm_here, refused, tmp_path, human):
    settings = ("collect", "push-t", "--demonstrations", human, "--copies", 2, "--max-steps", 2, "--image-size", 28)
    assert "18 episodes" in alewm_here(*settings, "--jobs", 1, "--out", "1.h5")
    assert "No --demonstrations" not in alewm(*settings, "--jobs", 2, "--out", "2.h5").stderr
    assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "2.h5").read_bytes()
    assert "noise 0.038 instead of 0.1" in refused(*settings, "--noise", 0.1, "--out", "1.h5")
    alewm_here(*settings, "--held-out", "--jobs", 1, "--out", "others.h5")
    with EpisodeStore.open(tmp_path / "1.h5") as store, EpisodeStore.open(tmp_path / "others.h5") as others:
        facts = store.attributes
        assert (facts["behaviour"], facts["copies"], facts["noise"]) == ("demonstrations", 2, 0.038)
        assert (store.num_episodes, others.num_episodes) == (18, 2)
        assert {*store.column("family"), *others.column("family")} == set(range(10))


def test_without_demonstrations_push_t_says_what_it_records_instead(alewm, alewm_here, tmp_path):
    few = ("collect", "push-t", "--episodes", 1, "--max-steps", 1, "--image-size", 28, "--jobs", 1, "--out")
    said = alewm(*few, "a.h5").stderr
    assert "No --demonstrations were given: the behaviour 'expert' is recorded instead. The human demonstr" in said
    alewm_here(*few, "b.h5", "--behaviour", "expert")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("push-t", "--copies", 3), "--copies, --noise and --held-out are about copies of --demonstrations"),
        (("push-t", "--demonstrations", "none.zarr"), "There is no none.zarr. The human demonstrations are public"),
        (("push-t", "--demonstrations", "HUMAN", "--episodes", 3), "leave out --episodes and --behaviour"),
        (("push-t", "--demonstrations", "HUMAN", "--behaviour", "expert"), "leave out --episodes and --behaviour"),
        (("push-t", "--demonstrations", "HUMAN", "--copies", 0), "--copies is 1 or more"),
        (("two-room", "--demonstrations", "HUMAN"), "There are no public demonstrations of 'two-room'"),
    ],
)
def test_bad_requests_for_demonstrations_get_a_message_and_leave_nothing(refused, tmp_path, human, arguments, message):
    given = [human if argument == "HUMAN" else argument for argument in arguments]
    assert message in refused("collect", *given, "--out", "new/file.h5")
    assert not (tmp_path / "new").exists()
