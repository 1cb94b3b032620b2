import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from stat import S_ISDIR

import h5py
import numpy as np
import pytest

import toy_episodes
from alewm.data import schema
from alewm.data import writer as writer_module
from alewm.data.codec import Compression
from alewm.data.journal import remove_finished_journal
from alewm.data.store import EpisodeStore
from alewm.data.writer import StoreWriter
from alewm.errors import InputError
from toy_episodes import FRAME, numbers, random_episodes, tape, write_tape


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    episodes = list(random_episodes(0, range(5)))
    with StoreWriter(tmp_path / "a.h5", attributes={"task": "toy"}) as writer:
        for episode in episodes:
            writer.append(episode)
    with EpisodeStore.open(tmp_path / "a.h5") as store:
        assert store.attributes == {"task": "toy"}
        assert store.lengths.tolist() == [len(episode["action"]) for episode in episodes]
        assert store.frame_shape == FRAME
        assert set(store.column_names) == {"pixels", "action", "proprio"}
        for number, episode in enumerate(episodes):
            found = store.episode(number)
            assert found.keys() == episode.keys()
            for name in episode:
                np.testing.assert_array_equal(found[name], episode[name])
                assert found[name].dtype == episode[name].dtype
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5"]


def test_the_file_has_the_layout_of_the_field(tmp_path: Path) -> None:
    with h5py.File(write_tape(tmp_path / "a.h5", [30, 25])) as file:
        assert file["pixels"].chunks == (1, *FRAME)
        assert file["pixels"].compression == "gzip"
        for name, dtype in (("step_idx", "i8"), ("ep_idx", "i4"), ("ep_len", "i4"), ("ep_offset", "i8")):
            assert file[name].dtype == dtype
        assert file["ep_offset"][:].tolist() == [0, 30]
        assert file["ep_idx"][:].tolist() == [0] * 30 + [1] * 25
        assert file["step_idx"][:].tolist() == [*range(30), *range(25)]
        np.testing.assert_array_equal(numbers(file["pixels"][:]), np.arange(55))


def test_slashes_in_names_become_underscores_and_given_indices_are_not_believed(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a.h5") as writer:
        writer.append(tape(0, 30) | {"privileged/pos": np.zeros((30, 3)), "ep_idx": np.full(30, 7)})
    with EpisodeStore.open(tmp_path / "a.h5") as store:
        assert "privileged_pos" in store.column_names
        assert store.column("ep_idx").max() == 0


def test_the_same_episodes_give_the_same_bytes_however_often_the_writing_is_interrupted(tmp_path: Path) -> None:
    episodes = list(random_episodes(1, range(6)))
    with StoreWriter(tmp_path / "whole.h5") as writer:
        for episode in episodes:
            writer.append(episode)
    for stop in (0, 2, 5):
        writer = StoreWriter(tmp_path / "parts.h5")
        for episode in episodes[writer.num_episodes : stop]:
            writer.append(episode)
        writer.abandon()
    with StoreWriter(tmp_path / "parts.h5") as writer:
        assert writer.num_episodes == 5
        writer.append(episodes[5])
    assert (tmp_path / "parts.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def _begin(path: Path, episodes: list[dict[str, np.ndarray]]) -> StoreWriter:
    writer = StoreWriter(path)
    for episode in episodes:
        writer.append(episode)
    return writer


@pytest.mark.parametrize("cut", [1, 5, 100])
def test_an_episode_that_was_half_written_is_written_again(tmp_path: Path, cut: int) -> None:
    episodes = list(random_episodes(1, range(3)))
    _begin(tmp_path / "whole.h5", episodes).complete()
    _begin(tmp_path / "torn.h5", episodes).abandon()
    journal = tmp_path / "torn.h5.journal"
    journal.write_bytes(journal.read_bytes()[:-cut])
    with StoreWriter(tmp_path / "torn.h5") as writer:
        assert writer.num_episodes == 2
        writer.append(episodes[2])
    assert (tmp_path / "torn.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


@pytest.mark.parametrize("is_cut", [True, False])
@pytest.mark.parametrize("num_whole", [0, 2])
def test_an_episode_whose_frames_a_power_cut_took_is_written_again(
    tmp_path: Path, num_whole: int, is_cut: bool
) -> None:
    episodes = list(random_episodes(1, range(3)))
    _begin(tmp_path / "whole.h5", episodes).complete()
    _begin(tmp_path / "cut.h5", episodes[:num_whole]).abandon()
    size = (tmp_path / "cut.h5.partial").stat().st_size
    writer = StoreWriter(tmp_path / "cut.h5")
    for episode in episodes[num_whole:]:
        writer.append(episode)
    writer.abandon()
    with (tmp_path / "cut.h5.partial").open("r+b") as partial:
        end = partial.seek(0, os.SEEK_END)
        partial.truncate(size)
        if not is_cut:
            partial.truncate(end)  # which reads as zeros
    with StoreWriter(tmp_path / "cut.h5") as writer:
        assert writer.num_episodes == num_whole
        for episode in episodes[num_whole:]:
            writer.append(episode)
    assert (tmp_path / "cut.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_a_journal_without_the_frames_of_its_episodes_is_refused_and_kept(tmp_path: Path) -> None:
    _begin(tmp_path / "a.h5", [tape(0, 30)]).abandon()
    partial, elsewhere = tmp_path / "a.h5.partial", tmp_path / "elsewhere"
    partial.rename(elsewhere)
    for _ in range(2):
        with pytest.raises(InputError, match=r"a\.h5\.partial is missing: it has the frames .* Put it back"):
            StoreWriter(tmp_path / "a.h5")
    elsewhere.rename(partial)
    writer = StoreWriter(tmp_path / "a.h5")
    assert writer.num_episodes == 1
    writer.abandon()


def test_frames_are_on_the_disk_once(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (300, *FRAME), np.uint8)
    episodes = [tape(0, 300) | {"pixels": noise}]
    _begin(tmp_path / "whole.h5", episodes).complete()
    _begin(tmp_path / "a.h5", episodes).abandon()
    with h5py.File(tmp_path / "whole.h5") as file:
        frames = file["pixels"].id.get_storage_size()
    sizes = {path.suffix: path.stat().st_size for path in tmp_path.glob("a.h5.*")}
    assert sizes[".partial"] > frames
    assert sizes[".journal"] < frames / 10


def test_frames_that_hdf5_puts_elsewhere_are_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another version of HDF5 might."""
    _begin(tmp_path / "a.h5", [tape(0, 30)]).abandon()
    with monkeypatch.context() as patched:
        patched.setattr(writer_module, "_FORMAT", ("earliest", "v110"))
        with pytest.raises(InputError, match=r"a\.h5\.partial was begun by another version of h5py"):
            StoreWriter(tmp_path / "a.h5")
    with StoreWriter(tmp_path / "a.h5") as writer:
        assert writer.num_episodes == 1
    with EpisodeStore.open(tmp_path / "a.h5") as store:
        np.testing.assert_array_equal(store.episode(0)["pixels"], tape(0, 30)["pixels"])


def test_a_disk_that_is_full_costs_the_episode_it_had_no_room_for(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (30, *FRAME), np.uint8)
    episodes = [tape(30 * number, 30) | {"pixels": noise + np.uint8(number)} for number in range(3)]
    _begin(tmp_path / "whole.h5", episodes).complete()
    writer = _begin(tmp_path / "a.h5", episodes[:2])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "a.h5.partial").stat().st_size + 5000, hard))
    try:
        with pytest.raises(OSError, match=r"File too large: .*a\.h5'"):
            writer.append(episodes[2])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(InputError, match="has let go of its files; make another"):
        writer.append(episodes[2])
    with StoreWriter(tmp_path / "a.h5") as writer:
        assert writer.num_episodes == 2
        writer.append(episodes[2])
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_the_time_of_writing_is_not_in_the_file(tmp_path: Path) -> None:
    first = write_tape(tmp_path / "a.h5", [30]).read_bytes()
    program = textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(Path(toy_episodes.__file__).parent)!r})
        from pathlib import Path
        from toy_episodes import write_tape
        time.sleep(1.1)
        write_tape(Path({str(tmp_path / "b.h5")!r}), [30])
    """)
    subprocess.run([sys.executable, "-c", program], check=True)
    assert (tmp_path / "b.h5").read_bytes() == first


def test_an_error_keeps_the_finished_episodes_and_no_half_made_file(tmp_path: Path) -> None:
    def stumble() -> None:
        with StoreWriter(tmp_path / "a.h5") as writer:
            writer.append(tape(0, 30))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        stumble()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5.journal", "a.h5.partial"]


def test_a_file_that_cannot_be_completed_leaves_its_journal_alone(tmp_path: Path) -> None:
    for _ in range(2):  # the first attempt has let go of the journal
        with pytest.raises(InputError, match="would hold no episode"), StoreWriter(tmp_path / "a.h5"):
            pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5.journal", "a.h5.partial"]


def test_the_journal_stays_until_the_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        with pytest.raises(OSError, match=r"^$"):
            write_tape(tmp_path / "a.h5", [30])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5.journal", "a.h5.partial"]
    with StoreWriter(tmp_path / "a.h5") as writer:
        assert writer.num_episodes == 1


def test_the_writer_refuses_what_does_not_fit(tmp_path: Path) -> None:
    good = tape(0, 30)

    def at_row(row: int, value: float) -> np.ndarray:
        action = good["action"].copy()
        action[row, 1] = value
        return action

    writer = StoreWriter(tmp_path / "a.h5")
    for change, message in [
        ({"pixels": good["pixels"].astype(np.float32)}, "needs a column 'pixels' of uint8 frames"),
        ({"action": good["action"][:, 0]}, "needs a column 'action' of floats"),
        ({"proprio": good["proprio"][:-1]}, r"'proprio' has shape \(29, 2\); 30 rows"),
        ({"task": np.array(["a"] * 30)}, "'task' holds <U1; only numbers"),
        ({"action": good["action"][:, :0]}, r"'action' has rows of shape \(0,\), which hold nothing"),
        ({"pixels": good["pixels"][:, :0]}, r"'pixels' has rows of shape \(0, 16, 3\), which hold nothing"),
        ({"": good["proprio"]}, "is named '', which no file can hold"),
        ({"action": at_row(7, np.nan)}, r"'action', row 7 of 30: the action is \[7.0, nan\]; .* the last row only"),
        ({"action": at_row(29, np.inf)}, r"'action', row 29 of 30: the action is \[nan, inf\]"),
    ]:
        with pytest.raises(InputError, match=message):
            writer.append(good | change)
    writer.append(good)
    with pytest.raises(InputError, match=r"Episode 1 .* column 'proprio' is float32 .* in earlier episodes float64"):
        writer.append(good | {"proprio": good["proprio"].astype(np.float32)})
    with pytest.raises(InputError, match="Another process is writing"):
        StoreWriter(tmp_path / "a.h5")
    writer.complete()
    with pytest.raises(InputError, match="exists already"):
        StoreWriter(tmp_path / "a.h5")
    with pytest.raises(InputError, match=r"zlib's level is 1 \(fast\) to 9"):
        Compression(level=10)
    with pytest.raises(InputError, match="does not exist"):
        StoreWriter(tmp_path / "nowhere" / "b.h5")


@pytest.mark.parametrize("zeros", [1, 12, 5000])
@pytest.mark.parametrize("num_finished", [0, 2])
def test_zeros_at_the_end_of_a_journal_are_a_power_cut_not_an_episode(
    tmp_path: Path, num_finished: int, zeros: int
) -> None:
    episodes = list(random_episodes(1, range(3)))
    _begin(tmp_path / "whole.h5", episodes).complete()
    _begin(tmp_path / "cut.h5", episodes[:num_finished]).abandon()
    with (tmp_path / "cut.h5.journal").open("ab") as journal:
        journal.write(bytes(zeros))
    with StoreWriter(tmp_path / "cut.h5") as writer:
        assert writer.num_episodes == num_finished
        for episode in episodes[num_finished:]:
            writer.append(episode)
    assert (tmp_path / "cut.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


@pytest.mark.parametrize("kept", [0, 1, 40])
def test_a_journal_whose_description_was_cut_or_never_reached_the_disk_begins_anew(tmp_path: Path, kept: int) -> None:
    StoreWriter(tmp_path / "a.h5").abandon()
    journal = tmp_path / "a.h5.journal"
    journal.write_bytes(journal.read_bytes()[:kept] + bytes(100))
    with StoreWriter(tmp_path / "a.h5") as writer:
        writer.append(tape(0, 30))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5"]


def test_a_file_of_ones_own_with_a_journals_name_is_kept(tmp_path: Path) -> None:
    own = tmp_path / "a.h5.journal"
    own.write_text("Monday: collected three hours.")
    with pytest.raises(InputError, match=r"a\.h5\.journal is in the way"):
        StoreWriter(tmp_path / "a.h5")
    assert own.read_text() == "Monday: collected three hours."
    own.unlink()
    _begin(tmp_path / "a.h5", [tape(0, 30)]).complete()
    own.write_text("Monday: collected three hours.")
    remove_finished_journal(own)
    assert own.exists()


def test_a_finished_file_is_on_the_disk_before_its_journal_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, steps = _begin(tmp_path / "a.h5", [tape(0, 30)]), []
    fsync, replace, unlink = os.fsync, Path.replace, Path.unlink
    inode = (tmp_path / "a.h5.partial").stat().st_ino

    def flushed(descriptor: int) -> None:
        of = os.fstat(descriptor)
        steps.append("file flushed" if of.st_ino == inode else "folder flushed" if S_ISDIR(of.st_mode) else "another")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", lambda *paths: [steps.append("named"), replace(*paths)][1])
    monkeypatch.setattr(Path, "unlink", lambda path, **_: [steps.append(f"removed {path.suffix}"), unlink(path)][1])
    writer.complete()
    assert steps == ["file flushed", "named", "folder flushed", "removed .journal"]


@pytest.mark.parametrize("torn", [b"", b"half of an episode"])
def test_a_journal_without_a_finished_episode_is_in_nobodys_way(tmp_path: Path, torn: bytes) -> None:
    StoreWriter(tmp_path / "a.h5", attributes={"seed": 1, "a longer": "description"}).abandon()
    with (tmp_path / "a.h5.journal").open("ab") as journal:
        journal.write(torn)
    for interrupted in (True, False):
        writer = StoreWriter(tmp_path / "a.h5", attributes={"seed": 2})
        if interrupted:
            writer.append(tape(0, 30))
            writer.abandon()
    assert writer.num_episodes == 1
    writer.complete()
    with EpisodeStore.open(tmp_path / "a.h5") as store:
        assert store.attributes == {"seed": 2}


def test_a_journal_of_other_data_is_refused_and_kept(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "a.h5", attributes={"seed": 1})
    writer.append(tape(0, 30))
    writer.abandon()
    with pytest.raises(InputError, match=r"attributes\.seed: asked 2, found 1"):
        StoreWriter(tmp_path / "a.h5", attributes={"seed": 2})
    writer = StoreWriter(tmp_path / "a.h5", attributes={"seed": 1})
    assert writer.num_episodes == 1
    writer.abandon()


def test_the_fingerprint_is_of_the_content_not_of_its_compression(tmp_path: Path) -> None:
    a = write_tape(tmp_path / "a.h5", [30, 30], compression=Compression("zlib", level=1))
    b = write_tape(tmp_path / "b.h5", [30, 30], compression=Compression())
    c = write_tape(tmp_path / "c.h5", [30, 31])
    prints = [EpisodeStore.open(path).fingerprint for path in (a, b, c)]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("name", ["pixels", "action"])
def test_other_frames_or_actions_of_the_same_shape_have_another_fingerprint(tmp_path: Path, name: str) -> None:
    changed = tape(0, 30)
    changed[name][12] += 1
    prints = []
    for path, episode in ((tmp_path / "a.h5", tape(0, 30)), (tmp_path / "b.h5", changed)):
        with StoreWriter(path) as writer:
            writer.append(episode)
        with EpisodeStore.open(path) as store:
            prints.append(store.fingerprint)
    assert prints[0] != prints[1]


def test_actions_that_all_share_cannot_be_written_to(tmp_path: Path) -> None:
    with EpisodeStore.open(write_tape(tmp_path / "a.h5", [30])) as store, pytest.raises(ValueError, match="read-only"):
        store.actions[0] = 0


def test_columns_are_read_by_name(tmp_path: Path) -> None:
    store = EpisodeStore.open(write_tape(tmp_path / "a.h5", [30]))
    np.testing.assert_array_equal(store.column("proprio")[:, 0], np.arange(30))
    with pytest.raises(InputError, match="Did you mean 'proprio'"):
        store.column("propio")
    with pytest.raises(InputError, match="episodes 0 to 0, not 1"):
        store.rows_of(1)


def test_the_schema_knows_its_derived_columns() -> None:
    columns = ["pixels", "action", "pixels_crc32", "other_crc32", "ep_len"]
    assert [name for name in columns if schema.is_derived(name, columns)] == ["pixels_crc32", "ep_len"]
