"""A file whose writing is disturbed anywhere, and continued, ends in the bytes of one that was not."""

import errno
import gc
import io
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import toy_episodes
from alewm.data import writer as writer_module
from alewm.data.codec import Compression
from alewm.data.journal import Journal
from alewm.data.writer import StoreWriter, journal_path, make_record, partial_path
from alewm.errors import InputError
from alewm.files import is_still_at
from toy_episodes import random_episodes, tape, write_tape

Records = list[bytes]


def _records(rng: np.random.Generator, count: int, max_rows: int, draw_every: int) -> Records:
    """Episodes of two views; frames take a few bytes, and some columns have as many, so that sizes coincide."""
    side, num_views, made = int(rng.integers(1, 4)), int(rng.integers(0, 3)), []
    for _ in range(count):
        num_rows = int(rng.integers(1, max_rows + 1))
        num_drawn = len(range(0, num_rows, draw_every))
        views = {f"view{n}": rng.integers(0, 3, (num_drawn, 2, 1, 3), np.uint8) for n in range(num_views)}
        pixels = rng.integers(0, int(rng.choice([1, 2, 256])), (num_drawn, side, side, 3), np.uint8)
        action = rng.standard_normal((num_rows, 2)).astype(np.float32)
        made.append(make_record({"pixels": pixels, "action": action, **views}, Compression(), draw_every))
    return made


def _finish(path: Path, records: Records, draw_every: int = 1) -> bytes:
    with StoreWriter(path, attributes={"draw_every": draw_every}) as writer:
        for record in records[writer.num_episodes :]:
            writer.append_record(record)
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]
    return path.read_bytes()


class _Medium(io.FileIO):
    """The disk under the unfinished file: before each of its steps `disturb` is called, with what would be written."""

    @staticmethod
    def disturb(file: io.FileIO, data: bytes) -> None: ...

    def write(self, data: Any) -> int:
        _Medium.disturb(self, bytes(data))
        return super().write(data)

    def readinto(self, buffer: Any) -> int:
        _Medium.disturb(self, b"")
        return super().readinto(buffer)

    def truncate(self, size: int | None = None) -> int:
        _Medium.disturb(self, b"")
        return super().truncate(size)


@pytest.fixture
def disturbed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[io.FileIO, bytes], None]], None]:
    """Sets what happens at each step of the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # which takes most of the time, and changes nothing here
    monkeypatch.setattr(writer_module, "io", SimpleNamespace(FileIO=_Medium, RawIOBase=io.RawIOBase))
    return lambda disturb: monkeypatch.setattr(_Medium, "disturb", staticmethod(disturb))


def _at_step(number: int, act: Callable[[io.FileIO, bytes], None]) -> Callable[[io.FileIO, bytes], None]:
    steps = iter(range(10**9))
    return lambda file, data: act(file, data) if next(steps) == number else None


def _fail_with(error: BaseException) -> Callable[[io.FileIO, bytes], None]:
    def fail(file: io.FileIO, data: bytes) -> None:
        io.FileIO.write(file, data[: len(data) // 2])
        raise error

    return fail


def _num_steps(path: Path, records: Records, draw_every: int, disturbed: Any) -> tuple[int, bytes]:
    steps: list[int] = []
    disturbed(lambda *_: steps.append(0))
    whole = _finish(path / "whole.h5", records, draw_every)
    (path / "whole.h5").unlink()
    return len(steps), whole


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("seed", range(3))
def test_a_step_that_fails_is_raised_and_the_file_continued(tmp_path: Path, disturbed: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    draw_every = int(rng.integers(1, 4))
    records = _records(rng, int(rng.integers(1, 12)), int(rng.choice([1, 3, 30])), draw_every)
    num_steps, whole = _num_steps(tmp_path, records, draw_every, disturbed)
    for _ in range(4):
        with suppress(FileNotFoundError):
            (tmp_path / "a.h5").unlink()
        for _ in range(int(rng.integers(1, 4))):  # interruptions one after the other
            error = FULL if rng.random() < 0.7 else KeyboardInterrupt()
            late = int(rng.integers(0, 30)) if rng.random() < 0.5 else int(rng.integers(0, num_steps))
            disturbed(_at_step(num_steps - 1 - late, _fail_with(error)))
            with suppress(OSError, KeyboardInterrupt):  # a continued file takes fewer steps
                _finish(tmp_path / "a.h5", records, draw_every)
                break
            assert not (tmp_path / "a.h5").exists()
            disturbed(lambda *_: None)
        else:
            _finish(tmp_path / "a.h5", records, draw_every)
        assert (tmp_path / "a.h5").read_bytes() == whole


def _lose(path: Path, rng: np.random.Generator, from_byte: int) -> None:
    """What a power cut does: the end is missing, or zeros stand for some of it."""
    size = path.stat().st_size
    start = int(rng.integers(min(from_byte, size), size + 1))
    with path.open("r+b") as file:
        if rng.random() < 0.5:
            file.truncate(start)
        if rng.random() < 0.7:
            file.seek(start)
            file.write(bytes(min(int(rng.integers(0, 5000)), size - start)))


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_or_a_power_cut_at_any_moment_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disturbed: Any, seed: int
) -> None:
    rng = np.random.default_rng([seed, 1])
    draw_every = int(rng.integers(1, 4))
    records = _records(rng, int(rng.integers(1, 12)), int(rng.choice([1, 3, 30])), draw_every)
    (tmp_path / "work").mkdir()
    path, left = tmp_path / "work" / "a.h5", tmp_path / "left"
    num_steps, whole = _num_steps(tmp_path / "work", records, draw_every, disturbed)

    on_the_disk = {partial_path(path): 0, journal_path(path): 0}
    at_the_copy = dict(on_the_disk)

    def flush(descriptor: int) -> None:
        for file in on_the_disk:
            if is_still_at(file, descriptor):
                on_the_disk[file] = file.stat().st_size

    def copy(*_: object) -> None:
        shutil.copytree(path.parent, left)
        at_the_copy.update(on_the_disk)

    monkeypatch.setattr(os, "fsync", flush)
    for _ in range(4):
        on_the_disk.update(dict.fromkeys(on_the_disk, 0))
        for _ in range(int(rng.integers(1, 4))):
            shutil.rmtree(left, ignore_errors=True)
            disturbed(_at_step(int(rng.integers(0, num_steps)), copy))
            _finish(path, records, draw_every)
            disturbed(lambda *_: None)
            if not left.exists():  # the continued file took fewer steps
                break
            shutil.rmtree(path.parent)
            shutil.copytree(left, path.parent)
            on_the_disk.update(at_the_copy)
            if rng.random() < 0.5:
                _lose(partial_path(path), rng, on_the_disk[partial_path(path)])
            if rng.random() < 0.3:
                _lose(journal_path(path), rng, max(200, on_the_disk[journal_path(path)]))
        if not path.exists():
            _finish(path, records, draw_every)
        assert path.read_bytes() == whole
        path.unlink()


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records = _records(rng, 40, 20, 1)
    began = time.perf_counter()
    whole = _finish(tmp_path / "a.h5", records)
    seconds = time.perf_counter() - began
    (tmp_path / "a.h5").unlink()
    for delay in rng.uniform(0, seconds, 2):
        process = os.fork()
        if not process:
            _finish(tmp_path / "a.h5", records)
            os._exit(0)
        time.sleep(delay)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        if (tmp_path / "a.h5").exists():
            break
    else:
        _finish(tmp_path / "a.h5", records)
    assert (tmp_path / "a.h5").read_bytes() == whole


@pytest.mark.filterwarnings("ignore:.*Exception ignored")  # Python has functions that let no exception out
def test_ctrl_c_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records = _records(rng, 12, 20, 1)
    began = time.perf_counter()
    whole = _finish(tmp_path / "a.h5", records)
    seconds = time.perf_counter() - began

    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(3):
            (tmp_path / "a.h5").unlink()
            num_finished = 0
            while not (tmp_path / "a.h5").exists():
                try:
                    signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(0.0001, seconds)))
                    with StoreWriter(tmp_path / "a.h5", attributes={"draw_every": 1}) as writer:
                        assert writer.num_episodes >= num_finished
                        for record in records[writer.num_episodes :]:
                            writer.append_record(record)
                            num_finished = writer.num_episodes
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    for _ in range(9):  # an alarm that came before still has to become an interrupt
                        pass
                except KeyboardInterrupt:
                    continue
            assert (tmp_path / "a.h5").read_bytes() == whole
            journal_path(tmp_path / "a.h5").unlink(missing_ok=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("is_begun", [False, True])
def test_interrupts_in_a_row_wait_for_hdf5_at_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_begun: bool
) -> None:
    """The second one, too: HDF5 would lose what it was about to write, and complete the file without it."""
    records = _records(np.random.default_rng(0), 2, 3, 1)
    writes, interrupted_at = 0, -1
    write = writer_module._Partial.write

    def interrupted(self: Any, data: Any) -> int:
        nonlocal writes
        writes += 1
        if writes == interrupted_at:
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
        return write(self, data)

    monkeypatch.setattr(writer_module._Partial, "write", interrupted)
    whole = _finish(tmp_path / "a.h5", records)
    num_writes = writes
    for interrupted_at in range(1, num_writes + 1):
        (tmp_path / "a.h5").unlink()
        writes = interrupted_at  # none of what follows is
        if is_begun:
            writer = StoreWriter(tmp_path / "a.h5", attributes={"draw_every": 1})
            writer.append_record(records[0])
            writer.abandon()
        writes = 0
        with suppress(KeyboardInterrupt):  # a continued file takes fewer steps
            _finish(tmp_path / "a.h5", records)
        writes = interrupted_at
        if not (tmp_path / "a.h5").exists():
            _finish(tmp_path / "a.h5", records)
        assert (tmp_path / "a.h5").read_bytes() == whole


def _begin(path: Path, count: int) -> StoreWriter:
    writer = StoreWriter(path)
    for number in range(writer.num_episodes, count):
        writer.append(tape(30 * number, 30))
    return writer


def test_frames_of_later_episodes_stay_when_continuing_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDF5 ends a file where its last frame is, and knows of the first few only."""
    _begin(tmp_path / "a.h5", 10).abandon()
    calls = iter(range(100))
    write = StoreWriter._write

    def interrupted(self: StoreWriter, *given: Any) -> Any:
        if next(calls) == 4:
            raise KeyboardInterrupt
        return write(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(StoreWriter, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            StoreWriter(tmp_path / "a.h5")
    gc.collect()
    writer = StoreWriter(tmp_path / "a.h5")
    assert writer.num_episodes == 10
    writer.complete()
    assert (tmp_path / "a.h5").read_bytes() == write_tape(tmp_path / "whole.h5", [30] * 10).read_bytes()


def test_a_file_that_cannot_be_completed_lets_go(tmp_path: Path, disturbed: Any) -> None:
    writer = _begin(tmp_path / "a.h5", 3)
    disturbed(_at_step(0, _fail_with(FULL)))
    with pytest.raises(OSError, match=r"No space left on device: .*a\.h5'"):
        writer.complete()
    for again in (writer.complete, lambda: writer.append(tape(0, 30))):
        with pytest.raises(InputError, match="has let go of its files; make another"):
            again()
    with StoreWriter(tmp_path / "a.h5") as writer:
        assert writer.num_episodes == 3
    with pytest.raises(InputError, match="has let go of its files"):
        writer.complete()


def test_frames_without_their_journal_are_kept(tmp_path: Path) -> None:
    """As when only one of the two files was moved to a larger disk."""
    _begin(tmp_path / "a.h5", 3).abandon()
    journal, elsewhere = tmp_path / "a.h5.journal", tmp_path / "elsewhere"
    journal.rename(elsewhere)
    for _ in range(2):
        with pytest.raises(InputError, match=r"a\.h5\.journal is missing: .* Put it back, or delete .*partial too"):
            StoreWriter(tmp_path / "a.h5")
    elsewhere.rename(journal)
    with StoreWriter(tmp_path / "a.h5") as writer:
        assert writer.num_episodes == 3


def test_frames_of_another_recording_are_refused_and_both_files_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "FLUSH_SECONDS", 0)
    for name, first in (("a.h5", 0), ("b.h5", 7)):
        writer = StoreWriter(tmp_path / name)
        for number in range(3):
            writer.append(tape(first + 30 * number, 30))
        writer.abandon()
    own, other = partial_path(tmp_path / "a.h5"), partial_path(tmp_path / "b.h5")
    own.rename(tmp_path / "own")
    shutil.copy(other, own)
    for _ in range(2):
        with pytest.raises(InputError, match="not have the whole of episode 0, though 2 episodes were on the disk"):
            StoreWriter(tmp_path / "a.h5")
    assert own.read_bytes() == other.read_bytes()
    (tmp_path / "own").rename(own)
    with StoreWriter(tmp_path / "a.h5") as writer:
        assert writer.num_episodes == 3


def test_a_damaged_episode_is_written_again_by_doing_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "FLUSH_SECONDS", 0)
    sizes = []
    writer = StoreWriter(tmp_path / "a.h5")
    for number in range(5):
        writer.append(tape(30 * number, 30))
        sizes.append(partial_path(tmp_path / "a.h5").stat().st_size)
    writer.abandon()
    with partial_path(tmp_path / "a.h5").open("r+b") as partial:
        partial.seek(sizes[1] + 100)
        partial.write(b"damage")
    with pytest.raises(InputError, match=r"whole of episode 2, .* shorten the journal to") as refused:
        StoreWriter(tmp_path / "a.h5")
    os.truncate(journal_path(tmp_path / "a.h5"), int(str(refused.value).split("shorten the journal to ")[1].split()[0]))
    writer = StoreWriter(tmp_path / "a.h5")
    assert writer.num_episodes == 2
    writer.abandon()
    _begin(tmp_path / "a.h5", 5).complete()
    assert (tmp_path / "a.h5").read_bytes() == write_tape(tmp_path / "whole.h5", [30] * 5).read_bytes()


@pytest.mark.parametrize("attributes", [{}, {"task": "another"}])
@pytest.mark.parametrize("place", ["length", "header", "values", "frames' places"])
def test_a_damaged_journal_is_refused_and_no_episode_behind_it_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, attributes: dict[str, str]
) -> None:
    monkeypatch.setattr(writer_module, "FLUSH_SECONDS", 0)
    path, journal = tmp_path / "a.h5", journal_path(tmp_path / "a.h5")
    StoreWriter(path).abandon()
    begin = journal.stat().st_size
    _begin(path, 1).abandon()
    end = journal.stat().st_size
    _begin(path, 5).abandon()
    content = bytearray(journal.read_bytes())
    content[
        {"length": begin + 1, "header": begin + 20, "values": (begin + end) // 2, "frames' places": end - 1}[place]
    ] ^= 1
    journal.write_bytes(content)
    for _ in range(2):
        with pytest.raises(
            InputError, match="holds the beginning of another file" if attributes else "shorten"
        ) as said:
            StoreWriter(path, attributes=attributes)
        assert journal.read_bytes() == content
    if not attributes:
        assert "the whole of episode 0, though 4 episodes were on the disk" in str(said.value)
        os.truncate(journal, int(str(said.value).split("shorten the journal to ")[1].split()[0]))
        _begin(path, 5).complete()
        assert path.read_bytes() == write_tape(tmp_path / "whole.h5", [30] * 5).read_bytes()


def test_what_earlier_attempts_wrote_is_on_the_disk_however_short_they_were(tmp_path: Path) -> None:
    for count in range(1, 5):
        _begin(tmp_path / "a.h5", count).abandon()
    with journal_path(tmp_path / "a.h5").open("r+b") as journal:
        journal.seek(300)
        journal.write(b"damage")
    with pytest.raises(InputError, match="whole of episode 0, though 3 episodes were on the disk"):
        StoreWriter(tmp_path / "a.h5")


@pytest.mark.parametrize("names", [["partial"], ["journal"], ["partial", "journal"]])
def test_files_that_are_moved_while_they_are_written_are_soon_missed_and_can_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    monkeypatch.setattr(writer_module, "FLUSH_SECONDS", 0)
    (tmp_path / "other").mkdir()
    writer = _begin(tmp_path / "a.h5", 3)
    for name in names:
        (tmp_path / f"a.h5.{name}").rename(tmp_path / "other" / f"a.h5.{name}")
    with pytest.raises(InputError, match=rf"a\.h5\.{names[0]} was moved or deleted while it was written"):
        writer.append(tape(90, 30))
    for name in {"partial", "journal"}.difference(names):
        (tmp_path / f"a.h5.{name}").rename(tmp_path / "other" / f"a.h5.{name}")
    _begin(tmp_path / "other" / "a.h5", 5).complete()
    assert (tmp_path / "other" / "a.h5").read_bytes() == write_tape(tmp_path / "a.h5", [30] * 5).read_bytes()


def test_a_file_that_was_deleted_and_begun_anew_is_its_new_writers_alone(tmp_path: Path) -> None:
    first = _begin(tmp_path / "a.h5", 3)
    for path in list(tmp_path.iterdir()):
        path.unlink()
    second = _begin(tmp_path / "a.h5", 2)
    with pytest.raises(InputError, match=r"a\.h5\.partial was moved or deleted"):
        first.complete()
    second.append(tape(60, 30))
    second.complete()
    assert (tmp_path / "a.h5").read_bytes() == write_tape(tmp_path / "whole.h5", [30] * 3).read_bytes()


def test_a_file_that_came_under_the_name_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    writer = _begin(tmp_path / "a.h5", 3)
    (tmp_path / "a.h5").write_bytes(b"copied from elsewhere")
    with pytest.raises(InputError, match="exists already"):
        writer.complete()
    assert (tmp_path / "a.h5").read_bytes() == b"copied from elsewhere"
    (tmp_path / "a.h5").unlink()
    _begin(tmp_path / "a.h5", 4).complete()
    assert (tmp_path / "a.h5").read_bytes() == write_tape(tmp_path / "whole.h5", [30] * 4).read_bytes()


def test_a_journal_that_is_gone_when_the_file_is_complete_is_not_missed(tmp_path: Path) -> None:
    writer = _begin(tmp_path / "a.h5", 3)
    journal_path(tmp_path / "a.h5").unlink()
    writer.complete()
    assert (tmp_path / "a.h5").read_bytes() == write_tape(tmp_path / "whole.h5", [30] * 3).read_bytes()


def test_both_names_are_on_the_disk_before_an_episode_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut could leave a journal without the frames."""
    found: list[set[str]] = []
    monkeypatch.setattr(writer_module, "flush_folder", lambda folder: found.append({p.name for p in folder.iterdir()}))
    StoreWriter(tmp_path / "a.h5").abandon()
    assert found == [{"a.h5.partial", "a.h5.journal"}]


def test_a_process_that_ends_while_a_thread_records_ends(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import sys, threading
        sys.path.insert(0, {str(Path(toy_episodes.__file__).parent)!r})
        from alewm.data.writer import StoreWriter
        from toy_episodes import tape
        writer, has_begun = StoreWriter({str(tmp_path / "a.h5")!r}), threading.Event()

        def record():
            try:
                for number in range(100_000):
                    writer.append(tape(30 * number, 30))
                    if number == 5:
                        has_begun.set()
            except Exception:
                pass

        threading.Thread(target=record, daemon=True).start()
        has_begun.wait()
    """)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    writer = StoreWriter(tmp_path / "a.h5")
    assert writer.num_episodes > 5
    lengths = [30] * writer.num_episodes
    writer.complete()
    assert (tmp_path / "a.h5").read_bytes() == write_tape(tmp_path / "whole.h5", lengths).read_bytes()


def test_a_file_begun_by_a_version_with_other_records_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(writer_module, "RECORD_VERSION", 2)
        _begin(tmp_path / "a.h5", 1).abandon()
    before = journal_path(tmp_path / "a.h5").read_bytes()
    with pytest.raises(InputError, match=r"begun by another version of alewm: its episodes are of version 2, 3 was"):
        StoreWriter(tmp_path / "a.h5")
    assert journal_path(tmp_path / "a.h5").read_bytes() == before


def test_a_file_that_another_process_has_just_completed_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Completed after this one looked for it, and before it had the journal."""
    path = tmp_path / "a.h5"

    def later(*given: Any) -> Any:
        monkeypatch.undo()
        write_tape(path, [30])
        return Journal(*given)

    monkeypatch.setattr(writer_module, "Journal", later)
    with pytest.raises(InputError, match="exists already"):
        StoreWriter(path)
    assert path.read_bytes() == write_tape(tmp_path / "whole.h5", [30]).read_bytes()


def test_a_writer_that_is_forgotten_leaves_a_file_to_continue(tmp_path: Path) -> None:
    episodes = list(random_episodes(1, range(6)))
    with StoreWriter(tmp_path / "whole.h5") as writer:
        for episode in episodes:
            writer.append(episode)
    for stop in (2, 4, 6):
        writer = StoreWriter(tmp_path / "a.h5")
        for episode in episodes[writer.num_episodes : stop]:
            writer.append(episode)
        del writer
    StoreWriter(tmp_path / "a.h5").complete()
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()
