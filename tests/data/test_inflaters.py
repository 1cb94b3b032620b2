"""The decoder in C returns what zlib returns, and refuses what zlib refuses.

Claims: any bytes come back, however they were compressed; every match distance and code length is right; streams that
are cut, changed or of another size are refused exactly when zlib refuses them; nothing outside a frame is written, not
even by a damaged stream; and any number of threads may decode at once.
"""

import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import alewm
from alewm.data.codec import BatchDecoder, Compression, DamagedError, Inflate, NativeInflate, fastest_inflater
from alewm.data.frame_sources import open_frames
from alewm.data.store import EpisodeStore
from alewm.envs.two_room import TwoRoomRenderer
from alewm.kernels.compiled import NativeUnavailableError
from toy_episodes import write_tape

try:
    NATIVE = [NativeInflate()]
except NativeUnavailableError:
    NATIVE = []
native_only = pytest.mark.parametrize("native", NATIVE, ids=lambda inflater: inflater.library)

STRATEGIES = [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED]
FLUSHES = [zlib.Z_NO_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH]
GUARD = 400  # more than a fast copy goes beyond what it was asked for


def inflate(inflater: BatchDecoder, streams: list[bytes], size: int, *, verify: bool = True) -> list[bytes]:
    """The decoded streams; fails if anything around them was written, also when a stream is damaged."""
    file = np.frombuffer(b"".join(streams), np.uint8)
    sizes = np.array([len(stream) for stream in streams])
    room = np.full(len(streams) * size + 2 * GUARD, 0xA5, dtype=np.uint8)
    out = room[GUARD : len(room) - GUARD].reshape(len(streams), size)
    try:
        inflater.decode_many(file, np.cumsum(sizes) - sizes, sizes, out, verify=verify)
    finally:
        assert (room[:GUARD] == 0xA5).all()
        assert (room[len(room) - GUARD :] == 0xA5).all()
    return [row.tobytes() for row in out]


def as_zlib_does(stream: bytes, size: int) -> bytes | None:
    """What zlib makes of a stream that should have `size` bytes; None if it refuses."""
    try:
        data = zlib.decompress(stream)
    except zlib.error:
        return None
    return data if len(data) == size else None


def or_none(inflater: BatchDecoder, stream: bytes, size: int, *, verify: bool = True) -> bytes | None:
    try:
        return inflate(inflater, [stream], size, verify=verify)[0]
    except DamagedError:
        return None


def compressed(data: bytes, level: int, window_bits: int, memory: int, strategy: int, flush: int) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, window_bits, memory, strategy)
    half = len(data) // 2
    return (
        compressor.compress(data[:half])
        + compressor.flush(flush)
        + compressor.compress(data[half:])
        + (compressor.flush())
    )


ways = st.tuples(
    st.integers(0, 9), st.integers(9, 15), st.integers(1, 9), st.sampled_from(STRATEGIES), st.sampled_from(FLUSHES)
)
pieces = st.lists(
    st.tuples(st.binary(min_size=1, max_size=40), st.integers(1, 300)) | st.tuples(st.binary(max_size=300), st.just(1)),
    max_size=6,
)
contents = pieces.map(lambda parts: b"".join(part * times for part, times in parts))


@native_only
@settings(max_examples=300)
@given(data=contents, way=ways)
def test_any_bytes_come_back_however_they_were_compressed(
    native: NativeInflate, data: bytes, way: tuple[int, ...]
) -> None:
    assert inflate(native, [compressed(data, *way)], len(data)) == [data]


@native_only
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("level", range(10))
def test_all_levels_and_strategies(native: NativeInflate, level: int, strategy: int) -> None:
    rng = np.random.default_rng(level)
    image = np.repeat(rng.integers(0, 256, (40, 8), dtype=np.uint8), 24, axis=1)
    image[10:20] += rng.integers(0, 9, (10, 192), dtype=np.uint8)
    data = image.tobytes() * 10
    streams = [compressed(data, level, bits, 8, strategy, zlib.Z_NO_FLUSH) for bits in range(9, 16)]
    assert inflate(native, streams, len(data)) == [data] * len(streams)


@native_only
@pytest.mark.parametrize("distance", [*range(1, 70), 255, 258, 672, 4095, 32506])
def test_every_distance(native: NativeInflate, distance: int) -> None:
    period = np.random.default_rng(distance).bytes(distance)
    for size in (distance + 3, distance + 300, 3 * distance + 1000):
        data = (period * (size // distance + 1))[:size]
        assert inflate(native, [Compression().compress(data), zlib.compress(data, 9)], size) == [data, data]


@native_only
@pytest.mark.parametrize("num_symbols", [2, 3, 10, 14, 20])
def test_codes_of_every_length(native: NativeInflate, num_symbols: int) -> None:
    """Frequencies like Fibonacci's numbers have the longest codes there are, beyond the primary table."""
    counts = [1, 1]
    while len(counts) < num_symbols:
        counts.append(counts[-1] + counts[-2])
    data = np.random.default_rng(0).permutation(np.repeat(np.arange(num_symbols, dtype=np.uint8), counts)).tobytes()
    stream = compressed(data, 9, 15, 9, zlib.Z_HUFFMAN_ONLY, zlib.Z_NO_FLUSH)
    assert inflate(native, [stream] * 3, len(data)) == [data] * 3


def test_frames_of_a_task_come_back_byte_for_byte() -> None:
    positions = torch.from_numpy(np.random.default_rng(0).uniform(30, 190, (24, 2)))
    frames = TwoRoomRenderer()(positions).numpy()
    streams = [Compression().compress(frame.tobytes()) for frame in frames]
    for inflater in (fastest_inflater(), Inflate()):
        out = np.empty_like(frames).reshape(len(frames), -1)
        for stream, frame in zip(streams, out, strict=True):
            inflater.decode(memoryview(stream), frame.size, 0, frame)
        np.testing.assert_array_equal(out.reshape(frames.shape), frames)
    for native in NATIVE:
        for verify in (True, False):
            assert inflate(native, streams, out.shape[1], verify=verify) == [frame.tobytes() for frame in frames]


SMALL = [
    compressed(data, level, 15, 8, strategy, zlib.Z_NO_FLUSH)
    for data, level, strategy in [
        (b"abcabcabcabcd" * 3, 0, zlib.Z_DEFAULT_STRATEGY),
        (b"abcabcabcabcd" * 3, 6, zlib.Z_FIXED),
        (bytes(range(40)) * 3 + b"aaaaabbbbcccdde" * 9 + bytes(400), 9, zlib.Z_DEFAULT_STRATEGY),
    ]
]


@native_only
@pytest.mark.parametrize("stream", SMALL, ids=["stored", "fixed", "dynamic"])
def test_a_changed_bit_is_refused_exactly_when_zlib_refuses_it(native: NativeInflate, stream: bytes) -> None:
    size = len(zlib.decompress(stream))
    for bit in range(8 * len(stream)):
        changed = bytearray(stream)
        changed[bit // 8] ^= 1 << bit % 8
        assert or_none(native, bytes(changed), size) == as_zlib_does(bytes(changed), size)


@native_only
@pytest.mark.parametrize("stream", SMALL, ids=["stored", "fixed", "dynamic"])
def test_a_cut_stream_is_incomplete_wherever_it_is_cut(native: NativeInflate, stream: bytes) -> None:
    size = len(zlib.decompress(stream))
    for length in range(len(stream)):
        with pytest.raises(DamagedError, match="the stream is incomplete"):
            inflate(native, [stream[:length]], size)
    assert inflate(native, [stream + b"more"], size) == [zlib.decompress(stream)]


@native_only
@pytest.mark.parametrize("stream", SMALL, ids=["stored", "fixed", "dynamic"])
def test_another_size_is_refused(native: NativeInflate, stream: bytes) -> None:
    size = len(zlib.decompress(stream))
    for wrong in (0, 1, size - 1):
        with pytest.raises(DamagedError, match="more bytes than expected"):
            inflate(native, [stream], wrong)
    for wrong in (size + 1, size + 1000):
        with pytest.raises(DamagedError, match="fewer bytes than expected"):
            inflate(native, [stream], wrong)


@native_only
@settings(max_examples=400)
@given(
    data=contents,
    way=ways,
    changes=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_changed_blocks_mean_what_zlib_says_also_without_a_checksum(
    native: NativeInflate, data: bytes, way: tuple[int, ...], changes: list[tuple[int, int]]
) -> None:
    stream = bytearray(compressed(data, *way))
    for place, byte in changes:
        stream[2 + place % (len(stream) - 2)] = byte
    changed = bytes(stream) + bytes(8)  # room for a checksum, wherever the blocks end now
    decoder = zlib.decompressobj(-15)
    try:
        expected = decoder.decompress(changed[2:])
    except zlib.error:
        assert or_none(native, changed, len(data), verify=False) is None
        return
    if decoder.eof and len(decoder.unused_data) >= 4:
        assert or_none(native, changed, len(expected), verify=False) == expected
    else:
        assert or_none(native, changed, len(expected), verify=False) is None


@native_only
@settings(max_examples=300)
@given(noise=st.binary(max_size=200), size=st.integers(0, 2000))
def test_noise_is_refused(native: NativeInflate, noise: bytes, size: int) -> None:
    assert or_none(native, b"\x78\x9c" + noise, size) == as_zlib_does(b"\x78\x9c" + noise, size)


@native_only
@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (b"", "incomplete"),
        (b"\x1f\x8b\x08\x00", "not a zlib stream"),
        (b"\x78\x9d" + bytes(9), "not a zlib stream"),
        (b"\x78\xbb" + bytes(9), "not a zlib stream"),  # wants a preset dictionary
        (b"\x88\x1c" + bytes(9), "not a zlib stream"),  # a window of 64 KiB
        (b"\x78\x9c\x07" + bytes(9), "a block with an impossible header"),
        (
            b"\x78\x9c\x01\x01\x00\x00\x00" + bytes(9),
            "a block with an impossible header",
        ),  # length and complement differ
        (b"\x78\x9c\x4b\x04\x12" + bytes(9), "a reference to before the beginning"),
        (b"\x78\x9c\xfd\xff\xff\xff" + bytes(9), "an impossible set of codes"),
        (b"\x78\x9c\x1b\x03" + bytes(9), "a code that stands for nothing"),  # symbol 286 of the fixed code
        (zlib.compress(b"x" * 50)[:-1] + b"?", "differ from their checksum"),
    ],
)
def test_the_reason_is_named(native: NativeInflate, stream: bytes, problem: str) -> None:
    good = zlib.compress(b"x" * 50)
    with pytest.raises(DamagedError, match=problem) as found:
        inflate(native, [good, good, stream, good], 50)
    assert (found.value.index, or_none(native, stream, 50)) == (2, as_zlib_does(stream, 50))


@native_only
def test_only_what_lies_in_the_file_is_read(native: NativeInflate) -> None:
    file = np.frombuffer(zlib.compress(bytes(50)), np.uint8)
    out, one = np.empty((1, 50), dtype=np.uint8), np.array([1])
    for offset, size in [(-1, 5), (0, len(file) + 1), (len(file), 1), (5, -1), (2**62, 2**62), (0, -(2**63))]:
        with pytest.raises(DamagedError, match="outside the file"):
            native.decode_many(file, np.array([offset]), np.array([size]), out, verify=True)
    with pytest.raises(ValueError, match="must be contiguous bytes"):
        native.decode_many(file, one, one, np.empty((1, 100), dtype=np.uint8)[:, ::2], verify=True)
    with pytest.raises(ValueError, match="1 offsets, 2 sizes and frames of"):
        native.decode_many(file, one, np.array([5, 5]), out, verify=True)


@native_only
def test_many_threads_decode_at_once(native: NativeInflate) -> None:
    rng = np.random.default_rng(0)
    frames = [np.repeat(rng.integers(0, 256, 300, dtype=np.uint8), 20).tobytes() for _ in range(64)]
    streams = [Compression().compress(frame) for frame in frames]

    def decode(seed: int) -> bool:
        order = np.random.default_rng(seed).permutation(len(frames)).tolist()
        return inflate(native, [streams[i] for i in order], len(frames[0])) == [frames[i] for i in order]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(decode, range(40)))


def test_the_source_says_what_inflates_and_without_a_compiler_why_not_c(tmp_path: Path) -> None:
    path = write_tape(tmp_path / "a.h5", [30])
    with EpisodeStore.open(path) as store:
        assert fastest_inflater().note in open_frames(store, [0]).description
        checksum = zlib.crc32(store.pixels[:].tobytes())
    code = (
        "import sys, zlib, numpy as np; from pathlib import Path; from alewm.data.frame_sources import open_frames; "
        "from alewm.data.store import EpisodeStore; store = EpisodeStore.open(Path(sys.argv[1])); "
        "frames = open_frames(store, [0]); out = np.empty((30, *frames.shape), np.uint8); "
        "frames.read(np.arange(30), out); print(frames.description, zlib.crc32(out.tobytes()))"
    )
    source = str(Path(alewm.__file__).parents[1])
    environment = {"PATH": "/nonexistent", "HOME": str(tmp_path), "PYTHONPATH": source}
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "(not in C: no C compiler was found)" in done.stdout
    assert done.stdout.split()[-1] == str(checksum)
