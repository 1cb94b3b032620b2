"""Damage anywhere in a data file is found when the damaged part is used, and older files still open."""

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from alewm.data import checks
from alewm.data.checks import ROWS_PER_CHECKSUM
from alewm.data.collect import RecordedEpisodes, collect
from alewm.data.frame_sources import open_frames, verify_columns, verify_frames
from alewm.data.inspection import describe_episodes
from alewm.data.store import EpisodeStore
from alewm.data.writer import StoreWriter
from alewm.errors import InputError
from older_files import as_older_version, remove_checksums
from toy_episodes import FRAME, tape, write_tape

LENGTHS = [30, 25, 1100]
FINGERPRINT = "c3f46a79a6fc7d5195d0c7db8a2377d9"  # of this tape, since the first version of the file
COLUMNS = ("action", "ep_idx", "ep_len", "ep_offset", "is_held", "pixels", "pixels_wrist", "proprio", "step_idx")


def write_rich(path: Path) -> Path:
    """A tape with a second camera and a column of booleans."""
    with StoreWriter(path, attributes={"task": "tape", "note": "with a text that is long enough to be hit"}) as writer:
        first_row = 0
        for length in LENGTHS:
            episode = tape(first_row, length)
            wrist, is_held = episode["pixels"][:, ::2, ::2], np.arange(length) % 3 == 0
            writer.append({**episode, "pixels_wrist": wrist, "is_held": is_held})
            first_row += length
    return path


def use_everything(path: Path) -> dict[str, np.ndarray]:
    """All that can be read of a file, frames by both ways."""
    with EpisodeStore.open(path) as store:
        found = {name: store.column(name) for name in store.stored_names if name != "pixels"}
        found["pixels"] = np.empty((store.num_rows, *FRAME), np.uint8)
        open_frames(store, range(store.num_episodes)).read(np.arange(store.num_rows), found["pixels"])
        np.testing.assert_array_equal(store.frames(np.arange(store.num_rows)), found["pixels"])
        return found | {"attributes": np.array(json.dumps(store.attributes) + str(store.encoder))}


def verify(path: Path) -> None:
    """What `alewm inspect` compares."""
    with EpisodeStore.open(path) as store:
        verify_columns(store)
        verify_frames(store)


def flip(path: Path, position: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


def stored_bytes(path: Path, column: str) -> list[int]:
    """The positions in the file of a column's values."""
    with h5py.File(path) as file:
        dataset, rest = file[column], file[column].nbytes
        positions: list[int] = []
        for i in range(dataset.id.get_num_chunks()):
            chunk = dataset.id.get_chunk_info(i)
            size = chunk.size if column.startswith("pixels") else min(chunk.size, rest)  # the last chunk has padding
            positions += range(chunk.byte_offset, chunk.byte_offset + size)
            rest -= size
    return positions


@pytest.mark.parametrize("column", COLUMNS)
def test_a_flipped_bit_in_any_column_is_refused_by_name(tmp_path: Path, column: str) -> None:
    path, rng = write_rich(tmp_path / "a.h5"), np.random.default_rng(0)
    sound = path.read_bytes()
    positions = stored_bytes(path, column)
    for position in rng.choice(positions, 8):
        path.write_bytes(sound)
        flip(path, int(position), int(rng.integers(8)))
        with pytest.raises(InputError, match=rf"a\.h5, column '{column}'.*differs from its checksum"):
            use_everything(path)
        with pytest.raises(InputError, match=rf"column '{column}'"):
            verify(path)


def test_flipped_bits_anywhere_are_refused_or_change_nothing(tmp_path: Path) -> None:
    path, rng = write_rich(tmp_path / "a.h5"), np.random.default_rng(1)
    sound, expected, refused = path.read_bytes(), use_everything(path), 0
    text = sound.index(b"long enough")
    # Besides random places, all of what is neither frame nor padding: the head of the file and the text.
    for position in [*rng.integers(len(sound), size=60), *rng.integers(2000, size=30), text, text + 5]:
        path.write_bytes(sound)
        flip(path, int(position), int(rng.integers(8)))
        try:
            found = use_everything(path)
        except InputError as error:
            assert re.search(r"a\.h5", str(error))  # noqa: PT017 (most places are refused, not all)
            refused += 1
            continue
        np.testing.assert_equal(found, expected)
    assert refused > 30


def test_only_what_is_read_has_to_be_sound(tmp_path: Path) -> None:
    path = write_tape(tmp_path / "a.h5", LENGTHS)
    late = stored_bytes(path, "proprio")[16 * ROWS_PER_CHECKSUM]  # two float64 per row
    flip(path, late, 0)
    with EpisodeStore.open(path) as store:
        np.testing.assert_array_equal(store.episode_columns(1)["proprio"][:, 0], np.arange(30, 55))
        with pytest.raises(InputError, match=r"'proprio', row 1000: what is stored in rows 1000 to 1154 differs"):
            store.episode_columns(2)
        np.testing.assert_array_equal(store.episode_columns(0)["proprio"][:, 0], np.arange(30))


@pytest.mark.parametrize("version", [1, 2])
def test_older_files_open_with_a_note_and_their_fingerprint(tmp_path: Path, version: int) -> None:
    path = as_older_version(write_tape(tmp_path / "a.h5", LENGTHS), version)
    with EpisodeStore.open(path) as store:
        assert (store.fingerprint, store.version) == (FINGERPRINT, version)
        (note,) = store.notes
        assert f"a.h5 has file version {version}: its states and actions have no checksums" in note
        assert set(store.column_names) == {"pixels", "action", "proprio"}
        assert verify_frames(store, decode=False)
        assert f"file version {version}; frames have checksums, without them: action, ep_idx" in describe_episodes(
            store
        )
    flip(path, stored_bytes(path, "pixels")[100], 3)
    with pytest.raises(InputError, match=r"'pixels', row \d+: the stored frame differs"):
        use_everything(path)


def test_a_copy_of_an_older_file_has_checksums_and_the_same_fingerprint(tmp_path: Path) -> None:
    new = write_tape(tmp_path / "new.h5", LENGTHS, attributes={"seed": 0, "num_episodes": 3})
    old = as_older_version(write_tape(tmp_path / "old.h5", LENGTHS), 1)
    copy = collect(RecordedEpisodes(old), tmp_path / "copy.h5", num_episodes=3, seed=0)
    assert copy.read_bytes() == new.read_bytes()
    with EpisodeStore.open(copy) as store:
        assert (store.fingerprint, store.version, store.notes) == (FINGERPRINT, 3, [])
        assert "file version 3; every column has checksums" in describe_episodes(store)


def test_other_tools_find_only_columns(tmp_path: Path) -> None:
    """They take all at the root but `ep_len` and `ep_offset` for columns of rows, and `pixels*` for images."""
    with h5py.File(write_rich(tmp_path / "a.h5"), "r", swmr=True) as file:
        assert sorted(file) == sorted(COLUMNS)
        for name in file.keys() - {"ep_len", "ep_offset"}:
            assert len(file[name][10:20]) == 10
            assert name.startswith("pixels") == (file[name].ndim == 4)


def test_what_another_program_replaces_is_noted_and_what_it_appends_is_refused(tmp_path: Path) -> None:
    path = write_tape(tmp_path / "a.h5", LENGTHS)
    with h5py.File(path, "r+") as file:
        values = file["proprio"][()] + 1
        del file["proprio"]
        file["proprio"], file["reward"] = values, np.zeros(1155)
    with EpisodeStore.open(path) as store:
        assert store.notes == [f"{path} has no checksums for proprio, reward: another program wrote them."]
        np.testing.assert_array_equal(store.column("proprio"), values)
    with h5py.File(path, "r+") as file:
        file["step_idx"].resize(2155, axis=0)
    with pytest.raises(InputError, match=r"'step_idx', row 1155: ends at 2155 rows"):
        EpisodeStore.open(path)
    with h5py.File(path, "r+") as file:
        file["step_idx"].resize(1155, axis=0)
        file["ep_len"].resize(1003, axis=0)
    with pytest.raises(InputError, match=r"'ep_len': 2 checksums were expected for 1003 rows.*on purpose"):
        EpisodeStore.open(path)


def test_texts_that_were_changed_are_refused(tmp_path: Path) -> None:
    path = write_tape(tmp_path / "a.h5", [30], attributes={"seed": 3072})
    with h5py.File(path, "r+") as file:
        file.attrs["alewm_attributes"] = '{"seed": 3073}'
    with pytest.raises(InputError, match=r"a\.h5: the attributes 'alewm_attributes' .* differ from their checksum"):
        EpisodeStore.open(path)


def test_a_file_without_checksums_is_read_as_before(tmp_path: Path) -> None:
    path = write_rich(tmp_path / "a.h5")
    expected = use_everything(path)
    np.testing.assert_equal(use_everything(remove_checksums(path)), expected)


@pytest.mark.parametrize("name", ["step_idx", "ep_idx", "ep_len", "ep_offset"])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_an_index_column_that_is_gone_is_missed(tmp_path, name, is_replaced):
    path = write_tape(tmp_path / "a.h5", LENGTHS)
    with h5py.File(path, "r+") as file:
        del file[name]
        if is_replaced:
            file.create_group(name)
    with pytest.raises(InputError, match=f"{name}.*missing; files of version 3 have it"):
        EpisodeStore.open(path)


def test_a_damaged_text_that_makes_hdf5_loop_for_ever_is_refused(tmp_path, monkeypatch):
    path = as_older_version(write_rich(tmp_path / "tape.h5"), 1)
    content = path.read_bytes()
    heap = content.index(b"GCOL")  # where HDF5 keeps texts of variable length
    path.write_bytes(content[: heap + 16] + bytes(32) + content[heap + 48 :])
    monkeypatch.setattr(checks, "TEXT_SECONDS", 1.0)
    with pytest.raises(InputError, match=r"tape\.h5: the attribute 'alewm_attributes' cannot be read\. Restore"):
        EpisodeStore.open(path)


def test_texts_are_never_read_because_damaged_ones_can_make_hdf5_loop_for_ever(tmp_path):
    path = remove_checksums(write_rich(tmp_path / "tape.h5"))
    with h5py.File(path, "r+") as file:
        file["instruction"] = ["go left"] * sum(LENGTHS)
    content = path.read_bytes()
    heap = content.index(b"GCOL")
    path.write_bytes(content[: heap + 16] + bytes(32) + content[heap + 48 :])
    with EpisodeStore.open(path) as store:
        assert "instruction" not in store.episode(0)
        with pytest.raises(InputError, match="'instruction': it holds object"):
            store.column("instruction")


def test_checksums_of_an_older_file_that_are_no_column_are_refused(tmp_path):
    path = as_older_version(write_rich(tmp_path / "tape.h5"), 1)
    with h5py.File(path, "r+") as file:
        del file["pixels_crc32"]
        file["pixels_crc32"] = 3
    with EpisodeStore.open(path) as store, pytest.raises(InputError, match="'pixels_crc32': one checksum per row"):
        open_frames(store, [0])
