"""The encoder in C makes streams that every decoder of zlib streams turns back into the frames.

Claims: any bytes of any length come back, through Python's zlib, our own decoder and HDF5's gzip filter; what cannot be
compressed grows by a few bytes only; drawn pictures become smaller than by zlib; and a stream depends on its frame
alone, not on its neighbours, on threads or on how often it is made.
"""

import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import alewm
from alewm.data.codec import Compression, NativeInflate, why_not_in_c
from alewm.data.collect import collect
from alewm.data.inspection import describe_episodes
from alewm.data.store import EpisodeStore
from alewm.data.writer import StoreWriter
from alewm.envs.two_room import TwoRoomRenderer
from alewm.errors import InputError
from alewm.kernels import deflate
from toy_episodes import FRAME, random_episodes, tape

# Where nothing compiles, the encoder is never used, and there is nothing to test of it.
in_c = pytest.mark.parametrize("encoder", [deflate.deflate] if why_not_in_c() is None else [])


def most_bytes(size: int) -> int:
    """What `size` bytes take in stored blocks: those of a zlib stream, and six for each block of 3,000 tokens."""
    return 2 + size + 6 * (size // 3000 + 1) + 4


def streams_of(encoder, frames: np.ndarray) -> list[bytes]:
    data, sizes = encoder(frames)
    ends = np.cumsum(sizes)
    assert ends[-1] == len(data)
    return [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def check(encoder, data: bytes, row_bytes: int = 0) -> bytes:
    """The stream of `data` as one frame of such rows, after it came back through zlib and our own decoder."""
    row_bytes = row_bytes if row_bytes and len(data) % row_bytes == 0 else max(1, len(data))
    frame = np.frombuffer(data, np.uint8).reshape(1, -1, row_bytes)
    (stream,) = streams_of(encoder, frame)
    assert zlib.decompress(stream) == data
    out = np.empty(len(data), np.uint8)
    NativeInflate().decode(memoryview(stream), len(data), 0, out)
    assert out.tobytes() == data
    assert len(stream) <= most_bytes(len(data))
    return stream


pieces = st.lists(
    st.tuples(st.binary(min_size=1, max_size=40), st.integers(1, 300)) | st.tuples(st.binary(max_size=300), st.just(1)),
    max_size=8,
)
contents = pieces.map(lambda parts: b"".join(part * times for part, times in parts))


@in_c
@settings(max_examples=200)
@given(data=contents)
def test_any_bytes_come_back(encoder, data: bytes) -> None:
    check(encoder, data)


@st.composite
def pictures(draw: st.DrawFn) -> np.ndarray:
    """Frames of flat areas, gradients, repeated rows and noise."""
    seed = draw(st.integers(0, 2**32 - 1))
    height, width = draw(st.integers(1, 40)), draw(st.integers(1, 60))
    rng = np.random.default_rng(seed)
    frame = np.broadcast_to(rng.integers(0, 256, 3, dtype=np.uint8), (height, width, 3)).copy()
    for kind in draw(st.lists(st.sampled_from(["box", "noise", "row", "gradient"]), max_size=5)):
        y, x = rng.integers(0, height), rng.integers(0, width)
        part = frame[y : y + rng.integers(1, 30), x : x + rng.integers(1, 30)]
        if kind == "box":
            part[:] = rng.integers(0, 256, 3)
        elif kind == "noise":
            part[:] = rng.integers(0, 2 ** rng.integers(1, 9), part.shape)
        elif kind == "row":
            frame[y:] = frame[y]
        else:
            part[:] = (np.arange(part.shape[1])[:, None] * rng.integers(1, 9)).astype(np.uint8)
    return frame


@in_c
@settings(max_examples=150)
@given(frame=pictures())
def test_any_picture_comes_back(encoder, frame: np.ndarray) -> None:
    check(encoder, frame.tobytes(), frame.shape[1] * 3)


@in_c
def test_every_length_comes_back(encoder) -> None:
    rng = np.random.default_rng(0)
    noise, few, row = rng.bytes(600), rng.integers(0, 3, 600, dtype=np.uint8).tobytes(), rng.bytes(24) * 25
    for length in range(601):
        for data in (bytes(length), noise[:length], few[:length], row[:length]):
            check(encoder, data, 24)


@in_c
@pytest.mark.parametrize("size", [3071, 3072, 3073, 65535, 65536, 200_000])
def test_noise_is_stored(encoder, size: int) -> None:
    """Around the sizes at which a block of tokens and a stored block are full."""
    assert size < len(check(encoder, np.random.default_rng(size).bytes(size))) <= most_bytes(size)


@in_c
@pytest.mark.parametrize("num_symbols", [2, 3, 14, 20, 23])
def test_codes_of_every_length(encoder, num_symbols: int) -> None:
    """Frequencies like Fibonacci's numbers would have codes of more bits than deflate has, if nobody shortened them."""
    counts = [1, 1]
    while len(counts) < num_symbols:
        counts.append(counts[-1] + counts[-2])
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(num_symbols, dtype=np.uint8), counts))
    check(encoder, order[:2900].tobytes())
    check(encoder, order.tobytes())


@in_c
@pytest.mark.parametrize("distance", [*range(1, 12), 255, 258, 672, 4095, 32766, 32767, 32768, 32769, 40_000])
def test_matches_at_every_distance(encoder, distance: int) -> None:
    period = np.random.default_rng(distance).bytes(distance)
    check(encoder, (period * 4)[: distance + 3000], distance)
    check(encoder, period * 3, distance)


def drawn_frames(count: int) -> np.ndarray:
    positions = torch.from_numpy(np.random.default_rng(0).uniform(30, 190, (count, 2)))
    return TwoRoomRenderer()(positions).numpy()


@in_c
def test_drawn_pictures_are_about_as_small_as_by_zlib(encoder) -> None:
    frames = drawn_frames(60)
    streams = streams_of(encoder, frames)
    assert [zlib.decompress(stream) for stream in streams] == [frame.tobytes() for frame in frames]
    by_zlib = sum(len(Compression().compress(frame.tobytes())) for frame in frames)
    assert sum(map(len, streams)) <= 1.05 * by_zlib


@in_c
def test_a_stream_depends_on_its_frame_alone(encoder) -> None:
    frames = np.concatenate([drawn_frames(6), np.random.default_rng(1).integers(0, 9, (2, 224, 224, 3), np.uint8)])
    alone = [encoder(frame[None])[0] for frame in frames]
    order = np.random.default_rng(2).permutation(len(frames))
    assert streams_of(encoder, frames[order]) == [alone[i] for i in order]
    assert streams_of(encoder, frames[:, :, ::-1][:, :, ::-1]) == alone
    with ThreadPoolExecutor(4) as threads:
        assert all(made == alone for made in threads.map(lambda _: streams_of(encoder, frames), range(8)))


@in_c
def test_bytes_without_rows_and_other_types_are_refused(encoder) -> None:
    with pytest.raises(ValueError, match=r"Frames are bytes \[n, rows, ...\], got uint8 \(3, 4\)"):
        encoder(np.zeros((3, 4), np.uint8))
    with pytest.raises(ValueError, match="got float32"):
        encoder(np.zeros((3, 4, 5), np.float32))


@in_c
def test_hdf5_reads_what_was_written(encoder, tmp_path: Path) -> None:
    frames = np.concatenate([drawn_frames(3), np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), np.uint8)])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("pixels", frames.shape, np.uint8, chunks=(1, 224, 224, 3), compression="gzip")
        for row, stream in enumerate(streams_of(encoder, frames)):
            dataset.id.write_direct_chunk((row, 0, 0, 0), stream)
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["pixels"][:], frames)


def test_the_encoder_is_stored_and_changes_no_fingerprint(tmp_path: Path) -> None:
    ours = collect(random_episodes, tmp_path / "ours.h5", num_episodes=5, seed=1)
    by_zlib = Compression(encoder="zlib")
    other = collect(random_episodes, tmp_path / "zlib.h5", num_episodes=5, seed=1, compression=by_zlib)
    with EpisodeStore.open(ours) as a, EpisodeStore.open(other) as b:
        assert a.fingerprint == b.fingerprint
        assert a.attributes == b.attributes
        assert (a.encoder, b.encoder) == (Compression().encoder_in_words, "zlib level 6")
        assert "frames compressed by zlib level 6" in describe_episodes(b)
        np.testing.assert_array_equal(a.pixels[:], b.pixels[:])


@in_c
def test_an_unfinished_file_is_continued_by_its_own_encoder_only(encoder, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "a.h5")
    writer.append(tape(0, 30))
    writer.abandon()
    with pytest.raises(InputError, match=r"encoder: asked '\(absent\)', found 'alewm 1'"):
        StoreWriter(tmp_path / "a.h5", compression=Compression(encoder="zlib"))
    with pytest.raises(InputError, match="Unknown encoder 'zip'"):
        Compression(encoder="zip")


def test_without_a_compiler_the_content_is_the_same(tmp_path: Path) -> None:
    here = collect(random_episodes, tmp_path / "here.h5", num_episodes=3, seed=1)
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]); "
        "from alewm.data.collect import collect; from alewm.data.codec import why_not_in_c; "
        "from toy_episodes import random_episodes; print(why_not_in_c()); "
        "collect(random_episodes, Path(sys.argv[1]), num_episodes=3, seed=1)"
    )
    there = tmp_path / "there.h5"
    source = str(Path(alewm.__file__).parents[1])
    environment = {"PATH": "/nonexistent", "HOME": str(tmp_path), "PYTHONPATH": source}
    command = [sys.executable, "-c", program, str(there), str(Path(__file__).parents[1] / "helpers")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "no C compiler was found"
    with EpisodeStore.open(here) as a, EpisodeStore.open(there) as b:
        assert b.encoder == "zlib level 6"
        assert a.fingerprint == b.fingerprint
        assert a.frame_shape == b.frame_shape == FRAME
        np.testing.assert_array_equal(a.pixels[:], b.pixels[:])
    assert collect(random_episodes, there, num_episodes=3, seed=1) == there  # complete, whatever compressed it
