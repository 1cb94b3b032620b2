"""Files from elsewhere: the published layouts open, the broken ones are refused by name, column and row."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from alewm.data.action_statistics import ActionStatistics
from alewm.data.frame_sources import open_frames, verify_frames
from alewm.data.loader import LoaderConfig, WindowLoader
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from toy_episodes import FRAME, numbers, tape, write_tape

LENGTHS = [30, 25]


def field_columns(lengths: list[int] = LENGTHS) -> dict[str, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    episodes = [tape(int(offset), length) for offset, length in zip(offsets, lengths, strict=True)]
    columns = {name: np.concatenate([episode[name] for episode in episodes]) for name in episodes[0]}
    return columns | {
        "ep_idx": np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        "step_idx": np.concatenate([np.arange(n, dtype=np.int64) for n in lengths]),
        "ep_len": np.array(lengths, dtype=np.int32),
        "ep_offset": offsets.astype(np.int64),
    }


def write_field_file(path: Path, columns: dict[str, np.ndarray], **pixel_options: Any) -> Path:
    with h5py.File(path, "w", libver="latest") as file:
        for name, values in columns.items():
            file.create_dataset(name, data=values, **(pixel_options if name == "pixels" else {}))
    return path


def without(*names: str) -> dict[str, np.ndarray]:
    return {name: values for name, values in field_columns().items() if name not in names}


RENAMED = without("ep_idx") | {"episode_idx": field_columns()["ep_idx"].astype(np.int64)}


@pytest.mark.parametrize(
    ("columns", "pixel_options"),
    [
        (field_columns(), {"chunks": (100, *FRAME), "maxshape": (None, *FRAME), "compression": "gzip"}),
        (field_columns(), {"chunks": (10, *FRAME), "compression": "lzf", "shuffle": True}),
        (field_columns(), {"chunks": (1, *FRAME)}),
        (field_columns(), {"chunks": (4, 6, 8, 3), "compression": "gzip"}),
        (field_columns(), {}),
        (RENAMED, {}),
        (without("ep_idx"), {"chunks": (1, *FRAME)}),
        (without("ep_len", "ep_offset"), {}),
        (without("ep_len", "ep_offset", "step_idx"), {}),
        (without("ep_idx", "step_idx", "ep_offset"), {}),
        (field_columns() | {"task": np.array([b"x"] * 55)}, {}),
    ],
)
def test_files_of_the_field_open(tmp_path: Path, columns: dict[str, np.ndarray], pixel_options: dict[str, Any]) -> None:
    path = tmp_path / "a.h5"
    if "chunks" in pixel_options:
        pixel_options = pixel_options | {"maxshape": (None, *FRAME)}
    with EpisodeStore.open(write_field_file(path, columns, **pixel_options)) as store:
        assert store.lengths.tolist() == LENGTHS
        assert store.offsets.tolist() == [0, 30]
        (note,) = store.notes
        assert "a.h5 was made elsewhere: its states and actions have no checksums" in note
        frames = open_frames(store, [0, 1])
        rows = np.array([54, 3, 30, 3, 29])
        out = np.empty((5, *FRAME), dtype=np.uint8)
        frames.read(rows, out)
        np.testing.assert_array_equal(out, columns["pixels"][rows])
        np.testing.assert_array_equal(store.frames(rows), out)


def test_a_file_without_reset_frames_opens_with_a_note_and_without_its_false_last_actions(tmp_path: Path) -> None:
    columns = field_columns()
    columns["step_idx"] += 1
    columns["action"][[29, 54]] = columns["action"][[0, 30]]
    with EpisodeStore.open(write_field_file(tmp_path / "a.h5", columns)) as store:
        assert np.isnan(store.actions[[29, 54]]).all()
        assert "without reset frames" in store.notes[0]


def test_other_view_columns_and_groups_do_not_disturb(tmp_path: Path) -> None:
    path = write_field_file(tmp_path / "a.h5", field_columns())
    with h5py.File(path, "a") as file:
        file.create_dataset("privileged/pos", data=np.zeros((55, 3)))
    assert EpisodeStore.open(path).num_rows == 55


def _set(name: str, row: Any, value: Any) -> Callable[[dict[str, np.ndarray]], None]:
    def change(columns: dict[str, np.ndarray]) -> None:
        columns[name][row] = value

    return change


def _replace(name: str, make: Callable[[np.ndarray], np.ndarray]) -> Callable[[dict[str, np.ndarray]], None]:
    def change(columns: dict[str, np.ndarray]) -> None:
        columns[name] = make(columns[name])

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("pixels"), r"column 'pixels': missing; uint8 \[rows, Y, X, 3\] was expected"),
        (lambda c: c.pop("action"), r"column 'action': missing"),
        (_replace("pixels", lambda p: p.astype(np.float32)), r"'pixels': uint8 .* found float32 \[55, 12, 16, 3\]"),
        (_replace("pixels", lambda p: p[..., 0]), r"'pixels': uint8 .* found uint8 \[55, 12, 16\]"),
        (_replace("action", lambda a: np.zeros(a.shape, np.int64)), r"'action': floats .* found int64"),
        (_replace("action", lambda a: a[:40]), r"'action', row 40: ends at 40 rows, but 'pixels' has 55"),
        (_replace("proprio", lambda a: a[:40]), r"'proprio', row 40: ends at 40 rows"),
        (_replace("pixels", lambda a: a[:0]), r"'pixels': no rows"),
        (_set("action", 7, np.inf), r"'action', row 7: an infinite action"),
        (_set("action", 7, np.nan), r"'action', row 7: a NaN action before the end"),
        (_set("ep_len", 1, 26), r"'ep_len', row 1: the episodes add up to 56 rows, but 'pixels' has 55"),
        (_set("ep_len", 1, 0), r"'ep_len', row 1: an episode of 0 rows"),
        (_replace("ep_len", lambda n: n.astype(float)), r"'ep_len': one integer per episode .* float64"),
        (_set("ep_offset", 1, 29), r"'ep_offset', row 1: 30 was expected, found 29"),
        (_set("ep_idx", 12, 1), r"'ep_idx', row 12: 0 was expected, found 1"),
        (_set("step_idx", 31, 5), r"'step_idx', row 31: 1 was expected, found 5"),
        (lambda c: [c.pop(n) for n in ("ep_len", "ep_offset", "ep_idx")], r"'ep_len': missing; .* tell episodes apart"),
        (
            lambda c: [c.pop("ep_len"), c.pop("ep_offset"), c["ep_idx"].__setitem__(50, 0)],
            r"'ep_idx', row 50: episode 0 continues after another",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_file_column_and_row(
    tmp_path: Path, change: Callable[[dict[str, np.ndarray]], Any], message: str
) -> None:
    columns = field_columns()
    change(columns)
    path = write_field_file(tmp_path / "wrong.h5", columns)
    with pytest.raises(InputError, match=message) as caught:
        EpisodeStore.open(path)
    assert str(path) in str(caught.value)


def test_what_is_no_data_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.h5").touch()
    (tmp_path / "text.h5").write_text("not a data file")
    for name, message in [
        ("none.h5", "does not exist"),
        ("empty.h5", "is empty"),
        ("text.h5", "is not an HDF5 file"),
        (".", "is a folder"),
    ]:
        with pytest.raises(InputError, match=message):
            EpisodeStore.open(tmp_path / name)


def test_a_file_whose_writer_was_killed_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    program = (
        "import h5py, os; file = h5py.File('a.h5', 'w', libver='latest'); "
        "file['action'] = [1]; file.swmr_mode = True; file.flush(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    with pytest.raises(InputError, match=r"clear the mark: h5clear -s .*a\.h5"):
        EpisodeStore.open(tmp_path / "a.h5")


@pytest.mark.parametrize("share", [0.99, 0.5, 0.1])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    path = write_tape(tmp_path / "a.h5", [30, 40])
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match="damaged or cut short"):
        EpisodeStore.open(path)


def _damage_frame(path: Path, row: int) -> None:
    with h5py.File(path) as file:
        info = file["pixels"].id.get_chunk_info_by_coord((row, 0, 0, 0))
    with path.open("r+b") as raw:
        raw.seek(info.byte_offset + info.size // 2)
        raw.write(b"\xa5\x5a\xa5\x5a")


def test_a_damaged_frame_is_found_before_training_and_named(tmp_path: Path) -> None:
    path = write_tape(tmp_path / "a.h5", [60, 60])
    _damage_frame(path, 45)
    store = EpisodeStore.open(path)
    with pytest.raises(InputError, match=r"a\.h5, column 'pixels', row 45: the stored frame differs from its checksum"):
        open_frames(store, [0])
    open_frames(store, [1])
    with pytest.raises(InputError, match=r"column 'pixels', row 45: the stored frame differs from its checksum"):
        store.frames(np.array([45]))


def test_a_damaged_frame_of_a_file_without_checksums_is_named_when_it_is_met(tmp_path: Path) -> None:
    options = {"chunks": (1, *FRAME), "compression": "gzip"}
    path = write_field_file(tmp_path / "a.h5", field_columns([60, 60]), **options)
    _damage_frame(path, 45)
    store = EpisodeStore.open(path)
    found = pytest.raises(InputError, match=r"a\.h5, column 'pixels', row 45: the frame")
    with found:
        open_frames(store, [0]).read(np.array([44, 45]), np.empty((2, *FRAME), dtype=np.uint8))
    statistics = ActionStatistics.fit(store.actions)
    with found, WindowLoader(store, [0], statistics, LoaderConfig(batch_size=41)) as loader:
        next(iter(loader))
    with found:
        verify_frames(store)
    assert not (tmp_path / "a.verified.json").exists()


@pytest.mark.parametrize("options", [{"chunks": (50, *FRAME), "compression": "lzf"}, {"compression": "gzip"}])
def test_a_sound_file_is_decoded_once_and_that_is_remembered(
    tmp_path: Path, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_field_file(tmp_path / "a.h5", field_columns([160, 130]), **options)
    store = EpisodeStore.open(path)
    assert verify_frames(store)
    assert f"checking {path}: 290/290 frames" in capsys.readouterr().err
    assert not verify_frames(store)
    assert not capsys.readouterr().err
    (tmp_path / "a.verified.json").write_text("{}")
    assert verify_frames(store)


def test_frames_with_checksums_are_compared_every_time_and_nothing_is_written(tmp_path: Path) -> None:
    store = EpisodeStore.open(write_tape(tmp_path / "own.h5", [30]))
    assert verify_frames(store)
    assert verify_frames(store, decode=False)
    assert [path.name for path in tmp_path.iterdir()] == ["own.h5"]


def test_frames_that_would_have_to_be_decoded_may_be_left_alone(tmp_path: Path) -> None:
    path = write_field_file(tmp_path / "a.h5", field_columns([60, 60]), chunks=(1, *FRAME), compression="gzip")
    _damage_frame(path, 45)
    assert not verify_frames(EpisodeStore.open(path), decode=False)
    assert [found.name for found in tmp_path.iterdir()] == ["a.h5"]


def test_a_damaged_first_frame_is_found_on_opening(tmp_path: Path) -> None:
    path = write_tape(tmp_path / "a.h5", [30])
    _damage_frame(path, 0)
    with pytest.raises(InputError, match=r"column 'pixels', row 0: the stored frame differs from its checksum"):
        EpisodeStore.open(path)


def test_a_frame_that_was_never_written_is_not_read_as_black(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    columns = field_columns()
    pixels = columns.pop("pixels")
    write_field_file(path, columns)
    with h5py.File(path, "a") as file:
        dataset = file.create_dataset(
            "pixels", shape=pixels.shape, dtype=np.uint8, chunks=(1, *FRAME), compression="gzip"
        )
        dataset[:40] = pixels[:40]
        dataset[41:] = pixels[41:]
    with pytest.raises(InputError, match=r"column 'pixels', row 40: the frame was never written"):
        EpisodeStore.open(path)


def _write_with_filter(path: Path, code: int, options: tuple[int, ...]) -> Path:
    columns = field_columns([130, 90])
    pixels = columns.pop("pixels")
    write_field_file(path, columns)
    with h5py.File(path, "a") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((100, *FRAME))
        # Optional, or HDF5 would refuse to make the dataset at all.
        properties.set_filter(code, h5py.h5z.FLAG_OPTIONAL, options)
        space = h5py.h5s.create_simple(pixels.shape)
        dataset = h5py.h5d.create(file.id, b"pixels", h5py.h5t.NATIVE_UINT8, space, properties)
        h5py.Dataset(dataset)[:] = pixels
    return path


def test_a_missing_codec_names_the_line_that_installs_it(tmp_path: Path) -> None:
    unregistered = 300  # in the range HDF5 keeps for trials
    path = _write_with_filter(tmp_path / "a.h5", unregistered, ())
    with pytest.raises(InputError, match=r"'pixels': compressed with HDF5 filter 300 .*pip install 'hdf5plugin>=5'"):
        EpisodeStore.open(path)


def test_the_published_codec_opens_where_it_is_installed_and_is_explained_where_not(tmp_path: Path) -> None:
    """Blosc with LZ4, level 5, byte shuffle, runs of 100 frames."""
    installed = importlib.util.find_spec("hdf5plugin") is not None
    if installed:
        importlib.import_module("hdf5plugin")
    path = _write_with_filter(tmp_path / "a.h5", 32001, (0, 0, 0, 0, 5, 1, 1))
    if not installed:
        with pytest.raises(InputError, match=r"HDF5 filter 32001 .*pip install 'hdf5plugin>=5'"):
            EpisodeStore.open(path)
        return
    frames = open_frames(EpisodeStore.open(path), [0, 1])
    assert "runs of 100 mapped from the file, decoded by blosc" in frames.description
    out = np.empty((3, *FRAME), dtype=np.uint8)
    frames.read(np.array([99, 100, 219]), out)
    np.testing.assert_array_equal(numbers(out), [99, 100, 219])


def test_a_newer_file_version_is_refused(tmp_path: Path) -> None:
    path = write_tape(tmp_path / "a.h5", [30])
    with h5py.File(path, "a") as file:
        file.attrs["alewm_file_version"] = 99
    with pytest.raises(InputError, match="file version 99; this alewm reads up to 3"):
        EpisodeStore.open(path)
