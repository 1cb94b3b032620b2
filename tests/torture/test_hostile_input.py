"""Files from others lead nowhere outside of their folder, take no memory they do not need, and empty nothing."""

import json
import resource
import struct
import zlib
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alewm.data.conversion.frames import decode_image
from alewm.data.conversion.lerobot import LeRobotEpisodes
from alewm.data.conversion.recordings import parquet_columns
from alewm.data.store import EpisodeStore
from alewm.data.writer import StoreWriter
from alewm.envs.push_t.demonstrations import read_demonstrations
from alewm.errors import InputError
from alewm.files import inside
from alewm.interop.pretrained import save_pretrained
from alewm.report.page import write_report
from alewm.runs.folder import new_folder, only_writer
from alewm.tables import Cell, Table
from alewm.theme import as_svg, new_axes
from alewm.training.metrics import Logbook
from human_demonstrations import demonstrations, tarred, write_zarr, zipped
from small_recordings import table_of, write_lerobot_v2, write_lerobot_v3
from toy_episodes import tape, write_tape

PRETRAINED = Path(__file__).parents[2] / "pretrained"


@pytest.fixture
def precious(tmp_path):
    """A file of the user, which a link leads to; it must stay as it is."""
    path = tmp_path / "precious"
    path.write_bytes(b"months of work")
    yield path
    assert path.read_bytes() == b"months of work"


# Links.


def test_a_linked_lock_is_not_followed(tmp_path, precious):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(precious)
    with pytest.raises(InputError, match=r"\.lock is a symbolic link"), only_writer(tmp_path / "run"):
        pass


def test_a_linked_journal_is_not_followed(tmp_path, precious):
    (tmp_path / "d.h5.journal").symlink_to(precious)
    with pytest.raises(InputError, match=r"d\.h5\.journal is a symbolic link.*Remove the link"):
        StoreWriter(tmp_path / "d.h5")


@pytest.mark.parametrize("dangling", [False, True])
def test_a_linked_partial_file_is_replaced_and_not_written_through(tmp_path, precious, dangling):
    target = tmp_path / "nowhere" if dangling else precious
    (tmp_path / "d.h5.partial").symlink_to(target)
    with StoreWriter(tmp_path / "d.h5") as writer:
        writer.append(tape(0, 3))
    assert (tmp_path / "nowhere").exists() is False
    assert EpisodeStore.open(tmp_path / "d.h5").num_rows == 3


def test_a_file_of_ones_own_with_the_name_of_a_partial_one_is_kept(tmp_path):
    own = tmp_path / "d.h5.partial"
    own.write_text("notes on the first part")
    with pytest.raises(InputError, match=r"d\.h5\.partial is in the way"):
        StoreWriter(tmp_path / "d.h5")
    assert own.read_text() == "notes on the first part"


@pytest.mark.parametrize("left", [b"", b"\0" * 2048, b"\x89HDF\r\n\x1a\n and a part"])
def test_what_a_killed_writer_left_is_replaced(tmp_path, left):
    StoreWriter(tmp_path / "d.h5").abandon()
    (tmp_path / "d.h5.partial").write_bytes(left)
    with StoreWriter(tmp_path / "d.h5") as writer:
        writer.append(tape(0, 3))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.h5"]


def test_a_linked_folder_in_place_of_an_unfinished_one_is_not_emptied(tmp_path, precious):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "kept").touch()
    (tmp_path / ".out.partial").symlink_to(tmp_path / "theirs")
    with new_folder(tmp_path / "out") as partial:
        (partial / "made").touch()
    assert (tmp_path / "theirs" / "kept").exists()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["made"]


def test_metrics_are_not_appended_through_a_link(tmp_path, precious):
    (tmp_path / "metrics.jsonl").symlink_to(precious)
    with pytest.raises(InputError, match=r"metrics\.jsonl is a symbolic link"):
        Logbook(tmp_path / "metrics.jsonl").append({"step": 1})


def test_a_film_that_is_a_link_out_of_its_run_is_not_shown(tmp_path, precious):
    run = tmp_path / "run"
    (run / "animations").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    (run / "animations" / "episode-1.gif").symlink_to(precious)
    with pytest.raises(InputError, match=r"episode-1\.gif is a link out of .*run, to .*precious"):
        write_report([run], tmp_path / "page")


def test_a_splits_file_that_is_a_link_out_of_its_run_is_not_shared(tmp_path, precious):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("config.json", "provenance.json", "checkpoints"):
        (run / name).symlink_to(PRETRAINED / "two-room-tiny" / name)
    (run / "splits.json").symlink_to(precious)
    with pytest.raises(InputError, match=r"splits\.json is a link out of"):
        save_pretrained(run, tmp_path / "shared")
    assert not (tmp_path / "shared").exists()


def test_links_of_the_hubs_cache_are_followed(tmp_path):
    blob, snapshot = tmp_path / "models--a--b" / "blobs" / "1f", tmp_path / "models--a--b" / "snapshots" / "main"
    blob.parent.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    blob.write_bytes(b"film")
    (snapshot / "a.gif").symlink_to(blob)
    assert inside(snapshot / "a.gif", snapshot).read_bytes() == b"film"
    (snapshot / "b.gif").symlink_to(tmp_path)
    with pytest.raises(InputError, match="link out of"):
        inside(snapshot / "b.gif", snapshot)


def test_a_refused_command_leaves_no_folder(tmp_path):
    with pytest.raises(InputError, match="no such thing"), only_writer(tmp_path / "distilled"):
        raise InputError("no such thing")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="no such thing"), only_writer(tmp_path / "there"):
        raise InputError("no such thing")
    assert (tmp_path / "there").is_dir()


# HDF5 that reads other files.


def _external_storage(file, name, old):
    file.create_dataset(name, old.shape, old.dtype, external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)])


def _external_link(file, name, old):
    file[name] = h5py.ExternalLink("/etc/hostname", "/")


def _virtual(file, name, old):
    layout = h5py.VirtualLayout(shape=old.shape, dtype=old.dtype)
    layout[...] = h5py.VirtualSource("/elsewhere.h5", "a", shape=old.shape)
    file.create_virtual_dataset(name, layout)


@pytest.mark.parametrize("column", ["pixels", "proprio"])
@pytest.mark.parametrize("make", [_external_storage, _external_link, _virtual])
def test_values_outside_of_the_file_are_refused(tmp_path, make, column):
    path = write_tape(tmp_path / "d.h5", [30, 25])
    with h5py.File(path, "r+") as file:
        old = file[column][()]
        del file[column]
        make(file, column, old)
    with pytest.raises(InputError, match=rf"d\.h5, column '{column}': .*not followed"):
        EpisodeStore.open(path)


# Memory.


@contextmanager
def limited_memory(extra):
    """The block may take so many bytes of address space more than the process has now."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + extra, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("column", ["pixels", "proprio", "action", "ep_idx"])
def test_rows_that_are_declared_but_not_there_take_no_memory(tmp_path, column):
    path = write_tape(tmp_path / "d.h5", [30, 25])
    with h5py.File(path, "r+") as file:
        old = file[column]
        row, dtype = old.shape[1:], old.dtype
        del file[column]
        file.create_dataset(column, (500_000_000, *row), dtype, chunks=(1000, *row), maxshape=(None, *row))
    with limited_memory(2**30), pytest.raises(InputError, match=r"500,?000,?000|bytes are declared"):
        EpisodeStore.open(path)


@pytest.mark.parametrize("side", [12_000, 60_000])
def test_a_picture_that_declares_too_many_pixels_takes_no_memory(side):
    def part(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = part(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    picture = b"\x89PNG\r\n\x1a\n" + header + part(b"IDAT", zlib.compress(bytes(1000))) + part(b"IEND", b"")
    with limited_memory(2**28), pytest.raises(InputError, match=r"frame-3\.png: .*pixels"):
        decode_image(picture, "frame-3.png")


def test_a_table_that_declares_too_many_rows_takes_no_memory(tmp_path):
    path = tmp_path / "bomb.parquet"
    with pq.ParquetWriter(path, pa.schema([("episode_index", pa.int8())])) as writer:
        block = pa.table({"episode_index": pa.array(np.zeros(10_000_000, np.int8))})
        for _ in range(15):
            writer.write_table(block)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(InputError, match=r"bomb\.parquet: 150,000,000 rows are declared in a file of"):
        parquet_columns(path)


def test_a_table_whose_column_has_a_name_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"velocity": [1.0, 2.0]}), path)
    path.write_bytes(path.read_bytes().replace(b"velocity", b"velo\xf9\xffty"))
    with pytest.raises(InputError, match=r"table\.parquet: not a Parquet file that can be read"):
        parquet_columns(path)


@pytest.mark.parametrize("kind", ["npz", "zip", "tar"])
def test_a_member_of_an_archive_that_would_take_too_much_memory_is_refused(tmp_path, monkeypatch, kind):
    arrays = demonstrations(3)
    path = tmp_path / f"demonstrations.{kind}"
    if kind == "npz":
        np.savez_compressed(path, **arrays)
    else:
        (zipped if kind == "zip" else tarred)(write_zarr(tmp_path / "zarr", arrays), path)
    read_demonstrations(path)
    monkeypatch.setattr("alewm.envs.push_t.demonstrations.MOST_MEMBER_BYTES", 100)
    with pytest.raises(InputError, match=rf"demonstrations\.{kind}.* bytes, at most 100 are read"):
        read_demonstrations(path)


# LeRobot.


@pytest.mark.parametrize("write", [write_lerobot_v2, write_lerobot_v3])
@pytest.mark.parametrize("field", ["data_path", "video_path"])
@pytest.mark.parametrize("template", ["/etc/passwd", "../outside.parquet", "data/../../outside.parquet"])
def test_a_path_of_a_data_set_that_leads_out_of_it_is_refused(tmp_path, write, field, template):
    folder = write(tmp_path / "set", [4, 4])
    pq.write_table(table_of(0, 4), tmp_path / "outside.parquet")
    info = json.loads((folder / "meta/info.json").read_text())
    (folder / "meta/info.json").write_text(json.dumps({**info, field: template}))
    with pytest.raises(InputError, match=r"info\.json: the path .* leads out of the data set"):
        list(LeRobotEpisodes(folder)(0, [0]))


@pytest.mark.parametrize("number", ["1e308", "-1", "true", "null", "[1]"])
def test_a_number_of_a_data_set_that_counts_nothing_is_refused(tmp_path, number):
    folder = write_lerobot_v2(tmp_path / "set", [4, 4])
    lines = folder / "meta/episodes.jsonl"
    lines.write_text(lines.read_text().replace('"episode_index": 1', f'"episode_index": {number}'))
    with pytest.raises(InputError, match=r"episodes\.jsonl, line 2: an object with episode_index and length"):
        list(LeRobotEpisodes(folder)(0, [0]))


# Names.


def test_a_cell_that_a_spreadsheet_would_compute_is_text():
    texts = ["=1+1", "+cmd", "-cmd", "@sum", "\tx", "-0.5", "+3", "1.5", "–", "two-room"]
    table = Table("t", "", ("cell",), tuple((Cell(text),) for text in texts))
    cells = [line.strip('"') for line in table.csv().splitlines()[1:]]
    assert cells == ["'=1+1", "'+cmd", "'-cmd", "'@sum", "'\tx", "-0.5", "+3", "1.5", "–", "two-room"]


def test_a_dollar_in_a_name_is_a_dollar_in_the_figure():
    def draw(theme):
        figure, axes = new_axes()
        axes.plot([1, 10, 1000], [1, 10, 1000], label=r"$cost_{\frac}$")
        axes.set(title=r"run $a$ and $b$ \frac", xlabel="one $", yscale="log")
        axes.legend()
        return figure

    svg = as_svg(draw).decode()
    assert r"run $a$ and $b$ \frac" in svg
    assert r"$cost_{\frac}$" in svg
    assert "mathdefault" not in svg, "powers of ten at the ticks are still drawn"
