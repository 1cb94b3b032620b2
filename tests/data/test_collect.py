import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from alewm.data.collect import CollectionProgress, RecordedEpisodes, collect, collect_command, collect_watched
from alewm.data.store import EpisodeStore
from alewm.data.writer import journal_path
from alewm.errors import InputError
from toy_episodes import HELD_EPISODE, forgetful_episodes, generous_episodes, random_episodes

HELPERS = Path(__file__).parents[1] / "helpers"


def test_the_file_holds_the_episodes_of_the_source_in_order(tmp_path: Path) -> None:
    reports: list[CollectionProgress] = []
    path = collect(random_episodes, tmp_path / "a.h5", num_episodes=5, seed=7, on_progress=reports.append)
    with EpisodeStore.open(path) as store:
        expected = list(random_episodes(7, range(5)))
        assert store.attributes == {"seed": 7, "num_episodes": 5}
        assert [(store.episode(i)["pixels"] == e["pixels"]).all() for i, e in enumerate(expected)] == [True] * 5
        assert [report.num_done for report in reports] == [1, 2, 3, 4, 5]
        assert reports[-1].num_new_frames == store.num_rows


def test_workers_and_tasks_do_not_change_the_bytes(tmp_path: Path) -> None:
    one = collect(random_episodes, tmp_path / "one.h5", num_episodes=9, seed=1)
    two = collect(random_episodes, tmp_path / "two.h5", num_episodes=9, seed=1, num_workers=2, episodes_per_task=2)
    other = collect(random_episodes, tmp_path / "other.h5", num_episodes=9, seed=2)
    assert one.read_bytes() == two.read_bytes() != other.read_bytes()


def collecting(path: Path) -> subprocess.Popen[bytes]:
    program = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(HELPERS)!r})
        from alewm.data.collect import collect
        from toy_episodes import worker_that_tells_its_process
        source = worker_that_tells_its_process
        collect(source, {str(path)!r}, num_episodes=60, seed=3, num_workers=2, episodes_per_task=2)
    """)
    folder = path.parent / "processes"
    folder.mkdir(exist_ok=True)
    return subprocess.Popen([sys.executable, "-c", program], env=os.environ | {"TOY_PIDS": str(folder)})


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_collection_continues_and_ends_in_the_same_bytes(tmp_path: Path) -> None:
    path, journal, partial = (tmp_path / f"killed.h5{suffix}" for suffix in ("", ".journal", ".partial"))
    process = collecting(path)
    folder = tmp_path / "processes"
    wait_for(lambda: partial.exists() and partial.stat().st_size > 20_000 and len(list(folder.iterdir())) == 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not path.exists()
    workers = [int(file.name) for file in folder.iterdir()]
    # Workers of a killed process must not outlive it.
    wait_for(lambda: not any(is_running(worker) for worker in workers))
    before = partial.stat().st_size
    reports: list[CollectionProgress] = []
    collect(random_episodes, path, num_episodes=60, seed=3, on_progress=reports.append)
    assert before > 20_000
    assert 1 < reports[0].num_done <= HELD_EPISODE + 1
    whole = collect(random_episodes, tmp_path / "whole.h5", num_episodes=60, seed=3)
    assert path.read_bytes() == whole.read_bytes()
    assert not journal.exists()
    assert not partial.exists()


def test_a_complete_file_is_left_as_it_is_and_a_different_one_refused(tmp_path: Path) -> None:
    path = collect(random_episodes, tmp_path / "a.h5", num_episodes=4, seed=1, attributes={"task": "toy"})
    content = path.read_bytes()
    leftover = tmp_path / "a.h5.journal"
    leftover.touch()
    collect(forgetful_episodes, path, num_episodes=4, seed=1, attributes={"task": "toy"})
    with pytest.raises(InputError, match="with seed 1 instead of 2"):
        collect(random_episodes, path, num_episodes=4, seed=2, attributes={"task": "toy"})
    assert path.read_bytes() == content
    assert not leftover.exists()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_source_that_leaves_episodes_out_is_refused(tmp_path: Path, num_workers: int) -> None:
    with pytest.raises(InputError, match="made 2 episodes when asked for 3"):
        collect(
            forgetful_episodes,
            tmp_path / "a.h5",
            num_episodes=6,
            seed=1,
            num_workers=num_workers,
            episodes_per_task=3,
        )
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_episode_that_nobody_asked_for_is_not_recorded(tmp_path: Path, num_workers: int) -> None:
    asked = {"num_episodes": 6, "seed": 1, "episodes_per_task": 3}
    with pytest.raises(InputError, match="made more episodes when asked for 3"):
        collect(generous_episodes, tmp_path / "a.h5", num_workers=num_workers, **asked)
    path = collect(random_episodes, tmp_path / "a.h5", **asked)
    assert path.read_bytes() == collect(random_episodes, tmp_path / "whole.h5", **asked).read_bytes()


def test_impossible_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one episode"):
        collect(random_episodes, tmp_path / "a.h5", num_episodes=0, seed=1)


@pytest.mark.parametrize("is_enough", [True, False])
def test_a_disk_too_small_for_the_whole_file_is_reported_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], is_enough: bool
) -> None:
    whole = collect(random_episodes, tmp_path / "whole.h5", num_episodes=64, seed=1).stat().st_size
    free = (1.5 if is_enough else 0.2) * whole
    monkeypatch.setattr("alewm.data.collect.shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    out = tmp_path / "a.h5"
    collect_watched(random_episodes, out, "collecting", num_episodes=64, num_workers=1, seed=1)
    said = capfd.readouterr().err
    assert said.count("will have about") == (not is_enough)
    assert (str(journal_path(out)) in said) == (not is_enough)


def test_a_file_from_elsewhere_is_converted_with_its_content(tmp_path: Path) -> None:
    made = collect(random_episodes, tmp_path / "made.h5", num_episodes=4, seed=1)
    with h5py.File(made) as file, h5py.File(tmp_path / "found.h5", "w") as found:
        for name in ("action", "proprio", "ep_len", "ep_offset", "step_idx"):
            found[name] = file[name][:]
        found.create_dataset("pixels", data=file["pixels"][:], chunks=(50, 12, 16, 3), compression="lzf")
        found["task"] = np.array([b"reach"] * len(file["pixels"]))
    copy = collect(RecordedEpisodes(tmp_path / "found.h5"), tmp_path / "copy.h5", num_episodes=4, seed=1)
    assert copy.read_bytes() == made.read_bytes()


def test_the_command_that_made_a_file_is_known_from_the_file():
    stored = {"task": "push-t", "num_episodes": 3, "seed": 1, "image_size": 28, "behaviour": "expert", "max_steps": 9}
    expected = "--episodes 3 --seed 1 --image-size 28 --behaviour expert --max-steps 9"
    assert collect_command(stored, "a b.h5") == f"alewm collect push-t {expected} --out 'a b.h5'"
    assert collect_command({**stored, "converted_from": "elsewhere"}, "a.h5") is None
    assert collect_command({"task": "push-t"}, "a.h5") is None
