"""Frames come back as they were, whatever compressed them; what is missing or damaged is said."""

import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm.data.codec import Blosc, Compression, DamagedError, Decoder, Inflate, Stored, fastest_inflater
from alewm.data.frame_sources import MappedFrames, PlainFrames, chunk_table, open_frames
from alewm.data.store import EpisodeStore

FILTERS = {
    "stored": {},
    "gzip": {"compression": "gzip"},
    "zstd": dict(hdf5plugin.Zstd()),
    "blosc": dict(hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=1)),
    "blosc that keeps the bytes": dict(hdf5plugin.Blosc(cname="lz4", clevel=0)),
    "lz4": dict(hdf5plugin.LZ4()),
}


def frames_of(seed: int, count: int, levels: int, size: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, levels, (count, size, size, 3), dtype=np.uint8)


def dataset_file(path: Path, frames: np.ndarray, per_chunk: int, options: dict) -> EpisodeStore:
    with h5py.File(path, "w") as file:
        file["action"] = np.zeros((len(frames), 1), np.float32)
        file["ep_len"] = np.array([len(frames)])
        file.create_dataset("pixels", data=frames, chunks=(per_chunk, *frames.shape[1:]), **options)
    return EpisodeStore.open(path)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("per_chunk", [1, 8, 100])
def test_any_rows_in_any_order_are_the_recorded_ones(tmp_path: Path, name: str, per_chunk: int) -> None:
    frames = frames_of(0, 130, 3, size=64)
    store = dataset_file(tmp_path / "a.h5", frames, per_chunk, FILTERS[name])
    source = open_frames(store, [0])
    # HDF5 stores a chunk as it is where its filter saves nothing, and marks it.
    assert isinstance(source, PlainFrames if name in ("zstd", "lz4", "blosc that keeps the bytes") else MappedFrames)
    rng = np.random.default_rng(1)
    for rows in (np.arange(130), rng.integers(0, 130, 40), np.array([129, 0, 129])):
        out = np.empty((len(rows), 64, 64, 3), np.uint8)
        source.read(rows, out)
        np.testing.assert_array_equal(out, frames[rows])
        np.testing.assert_array_equal(store.frames(rows), frames[rows])


class CountingDecoder:
    """Another decoder, with the number of chunks it was asked for."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.calls = decoder, 0
        self.library, self.note, self.decodes_parts = decoder.library, decoder.note, decoder.decodes_parts

    def decode(self, stored: memoryview, chunk_bytes: int, start: int, out: np.ndarray) -> None:
        self.calls += 1
        self.decoder.decode(stored, chunk_bytes, start, out)


def test_a_chunk_is_decoded_once_for_all_its_rows(tmp_path: Path) -> None:
    store = dataset_file(tmp_path / "a.h5", frames_of(0, 64, 3), 8, FILTERS["gzip"])
    table = chunk_table(store.pixels)
    assert not isinstance(table, str)
    counter = CountingDecoder(table.decoder)
    rows = np.array([3, 40, 8, 13, 5, 41, 18])
    MappedFrames(store, table, counter).read(rows, np.empty((7, 12, 12, 3), np.uint8))
    assert counter.calls == len(np.unique(rows // 8))


def test_a_frame_of_a_blosc_run_is_decoded_without_the_others(tmp_path: Path) -> None:
    frames = frames_of(0, 100, 2, size=224)
    store = dataset_file(tmp_path / "a.h5", frames, 100, FILTERS["blosc"])
    table = chunk_table(store.pixels)
    assert not isinstance(table, str)
    # Everything but the first blocks may be missing: only the wanted frame is looked at.
    view = bytearray(store.pixels.id.read_direct_chunk((0, 0, 0, 0))[1])
    view[len(view) // 2 :] = bytes(len(view) - len(view) // 2)
    out = np.empty(frames[0].size, np.uint8)
    Blosc().decode(memoryview(bytes(view)), frames.size, frames[0].size, out)
    np.testing.assert_array_equal(out, frames[1].ravel())


@settings(max_examples=30)
@given(st.binary(min_size=0, max_size=200), st.sampled_from([Stored(), Inflate(), Blosc()]))
def test_bytes_of_something_else_are_refused(content: bytes, decoder: Decoder) -> None:
    with pytest.raises(DamagedError):
        decoder.decode(memoryview(content), 3000, 0, np.empty(3000, np.uint8))


def test_streams_of_another_length_are_refused() -> None:
    stream = memoryview(Compression().compress(bytes(1000)))
    for expected in (999, 1001):
        with pytest.raises(DamagedError, match="bytes"):
            fastest_inflater().decode(stream, expected, 0, np.empty(expected, np.uint8))


def without_package(package: str, code: str) -> str:
    """What a Python without `package` prints for `code`."""
    program = f"import sys\nsys.modules[{package!r}] = None\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def opening(path: Path) -> str:
    return f"""
        from alewm.data.store import EpisodeStore
        from alewm.data.frame_sources import open_frames
        from alewm.errors import InputError
        try:
            print(open_frames(EpisodeStore.open({str(path)!r}), [0]).description)
        except InputError as error:
            print(error)
    """


def test_without_the_packages_the_message_has_the_line_that_installs_them(tmp_path: Path) -> None:
    blosc = tmp_path / "blosc.h5"
    dataset_file(blosc, frames_of(0, 130, 3), 100, FILTERS["blosc"]).close()
    said = without_package("hdf5plugin", opening(blosc))
    assert "column 'pixels': compressed with HDF5 filter 32001" in said
    assert "Install it: pip install 'hdf5plugin>=5' (or pip install '.[lewm-data]' in a clone of alewm)." in said
