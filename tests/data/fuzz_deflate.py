"""Feeds damaged streams to the decoder in C and frames of all kinds to the encoder; run under AddressSanitizer.

The decoder takes a stream exactly when zlib does, and returns the same bytes; the encoder's streams come back. Every
buffer is an allocation of its own and of just its size, so that a single byte read or written beside it is noticed.
"""

import ctypes
import json
import random
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from address_sanitizer import FLAGS
from alewm.kernels import deflate as codec
from alewm.kernels.compiled import load_library

INFLATER = load_library(codec._INFLATE, FLAGS)
DEFLATER = load_library(codec._DEFLATE, FLAGS)
MEMORY = ctypes.CDLL(None)
MEMORY.malloc.restype, MEMORY.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
MEMORY.free.restype, MEMORY.free.argtypes = None, [ctypes.c_void_p]
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
INFLATER.inflate_frames.argtypes = [
    _POINTER,
    _NUMBER,
    _POINTER,
    _POINTER,
    _NUMBER,
    _POINTER,
    _NUMBER,
    ctypes.c_int,
    _POINTER,
]
INFLATER.inflate_problem.restype = ctypes.c_char_p
DEFLATER.deflate_frames.argtypes = [_POINTER, _NUMBER, _NUMBER, _NUMBER, _POINTER, _POINTER]
DEFLATER.deflated_bytes_at_most.argtypes, DEFLATER.deflated_bytes_at_most.restype = [_NUMBER], _NUMBER

LONGEST = 20_000
"""Bytes that a stream may decode to here: what a damaged one claims beyond that is refused."""


@contextmanager
def allocated(size: int, content: bytes = b"") -> Iterator[int]:
    """The address of `size` bytes that begin with `content`."""
    address = MEMORY.malloc(size)
    ctypes.memmove(address, content, len(content))
    try:
        yield address
    finally:
        MEMORY.free(address)


def inflate(stream: bytes, size: int, *, verify: bool) -> tuple[bytes | None, str]:
    """What our decoder makes of a stream that should have `size` bytes, or None, and why."""
    place, length, index = _NUMBER(0), _NUMBER(len(stream)), _NUMBER(-1)
    with allocated(len(stream), stream) as file, allocated(size) as out:
        status = INFLATER.inflate_frames(
            file, len(stream), ctypes.addressof(place), ctypes.addressof(length), 1, out, size, verify,
            ctypes.addressof(index),
        )  # fmt: skip
        content = None if status else ctypes.string_at(out, size)
    return content, INFLATER.inflate_problem(status).decode()


def deflate(frame: bytes, row: int) -> bytes:
    """Our encoder's stream of a frame."""
    room, size = DEFLATER.deflated_bytes_at_most(len(frame)), _NUMBER(0)
    with allocated(len(frame), frame) as given, allocated(room) as out:
        assert DEFLATER.deflate_frames(given, 1, len(frame), row, out, ctypes.addressof(size)) == 0
        assert size.value <= room
        return ctypes.string_at(out, size.value)


def as_zlib_does(stream: bytes, *, verify: bool) -> bytes | None:
    """What zlib makes of a stream, or None if it refuses; without `verify` the checksum is only there, not right."""
    decoder = zlib.decompressobj(15 if verify else -15)
    try:
        content = decoder.decompress(stream if verify else stream[2:], LONGEST + 1)
    except zlib.error:
        return None
    is_whole = decoder.eof and (verify or len(decoder.unused_data) >= 4)
    return content if is_whole and len(content) <= LONGEST else None


def frame_of_some_kind(random: random.Random) -> tuple[bytes, int]:
    """A picture, a text, noise or nothing, and the bytes of its rows."""
    row = random.choice([1, 3, 12, 48, 192])
    kind = random.choice(["picture", "picture", "repeated", "noise", "one colour"])
    size = random.choice([0, 1, 2, 3, 7, random.randint(0, 300), random.randint(0, 3000)])
    if kind == "picture":
        content = b"".join(random.choice(COLOURS) * random.randint(1, 40) for _ in range(size // 20 + 1))
        content = b"".join(content[: row * random.randint(1, 3)] * random.randint(1, 9) for _ in range(8)) + content
    elif kind == "repeated":
        content = random.randbytes(random.randint(1, 300)) * 40
    else:
        content = random.randbytes(size) if kind == "noise" else random.randbytes(1) * size
    return content[:size], row


COLOURS = [bytes(3), b"\xff\xff\xff", b"\x10\x80\xf0", b"\xc8\x20\x20"]
STRATEGIES = [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED]


def stream_of_some_kind(random: random.Random) -> tuple[bytes, bytes]:
    """A frame and a stream of it, by our encoder or in one of the ways that zlib has."""
    frame, row = frame_of_some_kind(random)
    if random.random() < 0.4:
        return frame, deflate(frame, row)
    way = (random.randint(0, 9), zlib.DEFLATED, random.randint(9, 15), random.randint(1, 9), random.choice(STRATEGIES))
    compressor, half = zlib.compressobj(*way), random.randint(0, len(frame))
    first = compressor.compress(frame[:half]) + compressor.flush(random.choice([zlib.Z_NO_FLUSH, zlib.Z_FULL_FLUSH]))
    return frame, first + compressor.compress(frame[half:]) + compressor.flush()


def random_lengths(random: random.Random, num_symbols: int) -> list[int]:
    """Lengths of a complete code for some of the symbols, among them 256 if it is one."""
    leaves = [0]
    for _ in range(random.randint(1, min(num_symbols, 60)) - 1):
        depth = leaves.pop(random.randrange(len(leaves)))
        leaves += [depth + 1] * (2 if depth < 15 else 0) or [depth]
    used = random.sample([symbol for symbol in range(num_symbols) if symbol != 256], len(leaves))
    lengths = [0] * num_symbols
    for symbol, length in zip([256, *used] if num_symbols > 256 else used, leaves, strict=False):
        lengths[symbol] = length
    return lengths


def written_block(random: random.Random) -> bytes:
    """One dynamic block with codes as no encoder chooses them, sometimes too many of them, and noise after it."""
    bits, place = 0, 0

    def put(value: int, count: int) -> None:
        nonlocal bits, place
        bits, place = bits | value << place, place + count

    def put_length_symbol(symbol: int) -> None:
        code, count = (symbol, 4) if symbol < 13 else (symbol + 13, 5)  # 13 codes of 4 bits and 6 of 5: complete
        put(int(f"{code:0{count}b}"[::-1], 2), count)

    too_many = random.random() < 0.2
    num_litlens, num_distances = (few + random.randint(0, 31 if too_many else 29) for few in (257, 1))
    put(0b101, 3)  # the last block, dynamic
    put(num_litlens - 257, 5)
    put(num_distances - 1, 5)
    put(15, 4)
    for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15):
        put(4 if symbol < 13 else 5, 3)
    lengths = random_lengths(random, num_litlens) + random_lengths(random, num_distances)
    at = 0
    while at < len(lengths):
        run = next((n for n, length in enumerate(lengths[at : at + 138]) if length), min(len(lengths) - at, 138))
        if random.random() < (0.002 if at else 0.1):  # a repetition of nothing, or of any number
            put_length_symbol(random.choice([16, 17, 18]))
            at += 1
        elif run >= 3 and random.random() < 0.9:
            put_length_symbol(17 if run <= 10 else 18)
            put(run - (3 if run <= 10 else 11), 3 if run <= 10 else 7)
            at += run
        else:
            put_length_symbol(lengths[at])
            at += 1
    return b"\x78\x9c" + bits.to_bytes(place // 8 + 1, "little") + random.randbytes(random.randint(0, 100))


def damaged(stream: bytes, other: bytes, random: random.Random, first: int) -> bytes:
    """`stream` with one to three changes, none before the byte `first`."""
    changed = bytearray(stream)
    for _ in range(random.randint(1, 3)):
        at = random.randint(first, max(first, len(changed) - 1))
        if random.random() < 0.5:  # headers of blocks and their codes are in front
            at = min(at, random.randint(first, first + 30))
        length = random.randint(1, 8)
        kind = random.choice(["bit", "bit", "byte", "ones", "cut", "drop", "insert", "repeat", "other"])
        if kind == "bit" and at < len(changed):
            changed[at] ^= 1 << random.randrange(8)
        elif kind == "byte":
            changed[at : at + 1] = random.randbytes(1)
        elif kind == "ones":
            changed[at : at + length] = random.choice([b"\xff", b"\x00"]) * length
        elif kind == "cut":
            del changed[at:]
        elif kind == "drop":
            del changed[at : at + length]
        elif kind == "insert":
            changed[at:at] = random.randbytes(length)
        elif kind == "repeat":
            changed[at:at] = changed[at : at + 10 * length]
        else:
            begin = random.randint(0, len(other))
            changed[at:] = other[begin:]
    return bytes(changed)


def fuzz(random: random.Random, count: int) -> Counter[str]:
    """How often which problem was found; fails where zlib disagrees."""
    told: Counter[str] = Counter()
    streams = [stream_of_some_kind(random) for _ in range(40)]
    for number in range(count):
        if number % 20 == 0:
            frame, stream = streams[number // 20 % len(streams)] = stream_of_some_kind(random)
            assert inflate(stream, len(frame), verify=True) == (frame, "no problem"), stream.hex()
            told["whole"] += 1
        frame, stream = random.choice(streams)
        verify = random.random() < 0.3
        if number % 5 == 0:
            verify, changed = False, written_block(random)
        else:
            changed = damaged(stream, random.choice(streams)[1], random, first=0 if verify else 2)
        if not verify:
            changed = (changed + bytes(2))[: max(len(changed), 2)] + bytes(random.choice([0, 4, 8]))
        expected = as_zlib_does(changed, verify=verify)
        size = len(frame) if expected is None or random.random() < 0.2 else len(expected)
        size = random.choice([size, size, size, max(size - 1, 0), size + 1])
        found, problem = inflate(changed, size, verify=verify)
        agreed = expected if expected is not None and len(expected) == size else None
        assert found == agreed, f"{problem}, but zlib {'refuses' if agreed is None else 'does not'}: {changed.hex()}"
        told[problem] += 1
    return told


if __name__ == "__main__":
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    print(json.dumps(fuzz(random.Random(seed), count)))
