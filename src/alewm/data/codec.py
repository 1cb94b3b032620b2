"""Lossless frame compression, each frame on its own, and the decoders that read frames without HDF5.

`gzip` is the filter every HDF5 build has. Two encoders make its streams. Ours, in C (`alewm.kernels.deflate`), is for
drawn pictures: on those of Two-Room and Push-T it is about ten times as fast as zlib at level 6, at about its size.
zlib, always Python's own, is for pictures with texture, and for machines without a C compiler. What is installed beside
them never changes a file. One frame per chunk: runs of frames compress better, but a window takes four frames, five
rows apart, and would decode the runs they lie in.

HDF5's library runs one thread at a time, so frames are decoded here. Each decoder releases the interpreter while it
works, and threads decode side by side.
"""

import ctypes
import importlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import h5py
import numpy as np

from alewm.errors import InputError, unknown_name
from alewm.kernels import deflate
from alewm.kernels.compiled import NativeUnavailableError

Encoder = Literal["alewm", "zlib"]

# A frame is a calm background and a few busy rows. Short Huffman blocks (a small symbol buffer) give each its own code
# and save 3 % at no cost in time; the bytes stay plain zlib, whatever the reader.
_MEMORY_LEVEL = 5
_WINDOW_BITS = 15


@dataclass(frozen=True)
class Compression:
    """How the frames of a file are compressed: as streams of HDF5's gzip filter."""

    encoder: str = "alewm"
    """alewm: ours, which has no levels, or zlib if C cannot be compiled."""

    level: int = 6
    """Of zlib, from 1 (fast) to 9 (small); at 6, Two-Room files are within a tenth of level 9's size."""

    def __post_init__(self) -> None:
        if self.encoder not in get_args(Encoder):
            raise unknown_name("encoder", self.encoder, get_args(Encoder))
        if not 1 <= self.level <= 9:
            raise InputError(f"zlib's level is 1 (fast) to 9 (small), got {self.level}.")

    @property
    def uses_own_encoder(self) -> bool:
        """Whether streams are made by our encoder, here and now."""
        return self.encoder == "alewm" and why_not_in_c() is None

    @property
    def encoder_in_words(self) -> str:
        """Name of the encoder, as stored in files."""
        return f"alewm {deflate.VERSION}" if self.uses_own_encoder else f"zlib level {self.level}"

    def compress_frames(self, frames: np.ndarray) -> tuple[bytes, np.ndarray]:
        """The streams of `frames`, uint8 `[n, Y, X, 3]`, one after the other, and the size of each, int64 `[n]`."""
        if self.uses_own_encoder:
            return deflate.deflate(frames)
        streams = [self.compress(np.ascontiguousarray(frame).data) for frame in frames]
        return b"".join(streams), np.array([len(stream) for stream in streams], dtype=np.int64)

    def compress(self, frame: bytes | memoryview) -> bytes:
        """`frame` as a stream made by zlib."""
        compressor = zlib.compressobj(self.level, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL)
        return compressor.compress(frame) + compressor.flush()

    def identity(self) -> dict[str, Any]:
        """All that decides the bytes."""
        return {"encoder": self.encoder_in_words} if self.uses_own_encoder else {"level": self.level}


@cache
def why_not_in_c() -> str | None:
    """Why our own encoder does not work here; None if it does."""
    try:
        deflate.deflate_library()
    except NativeUnavailableError as error:
        return str(error)
    return None


BLOSC_FILTER = 32001
"""The number under which HDF5 knows Blosc."""


class DamagedError(ValueError):
    """A chunk that cannot be decoded; `index` is its number within the call."""

    def __init__(self, problem: str, index: int = 0) -> None:
        super().__init__(problem)
        self.index = index


@runtime_checkable
class Decoder(Protocol):
    """Decodes a stored chunk."""

    library: str
    """Name of the decoding library."""

    note: str
    """Why this decoder was chosen; may be empty."""

    decodes_parts: bool
    """Whether decoding a part of a chunk costs less than decoding all of it."""

    def decode(self, stored: memoryview, chunk_bytes: int, start: int, out: np.ndarray) -> None:
        """Write bytes `start` ... of the chunk, which has `chunk_bytes` when decoded, to `out`, uint8 [n].

        Decoders that cannot take parts are called with the whole chunk. Damage is a `DamagedError`.
        """


@runtime_checkable
class BatchDecoder(Decoder, Protocol):
    """A decoder that takes many chunks in one call."""

    def decode_many(
        self, file: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, out: np.ndarray, *, verify: bool
    ) -> None:
        """Write the chunks, `sizes` bytes of `file` at `offsets`, to the rows of `out`, uint8 [n, chunk bytes].

        Without `verify`, chunks are trusted to be what was once stored; they still cannot do harm.
        """


class Stored:
    """Chunks that are not compressed."""

    library = "none"
    note = ""
    decodes_parts = True

    def decode(self, stored: memoryview, chunk_bytes: int, start: int, out: np.ndarray) -> None:
        _check_size(len(stored), chunk_bytes)
        out[:] = np.frombuffer(stored, np.uint8, len(out), start)


class Inflate:
    """zlib streams, by Python's own zlib."""

    library = "zlib"
    decodes_parts = False

    def __init__(self, note: str = "") -> None:
        self.note = note

    def decode(self, stored: memoryview, chunk_bytes: int, start: int, out: np.ndarray) -> None:
        try:
            # The third argument is the first size of the output buffer: given exactly, nothing is copied to grow it.
            data = zlib.decompress(stored, _WINDOW_BITS, chunk_bytes)
        except zlib.error as error:
            raise DamagedError(str(error)) from None
        _check_size(len(data), chunk_bytes)
        out[:] = np.frombuffer(data, np.uint8)


class NativeInflate:
    """zlib streams, by our decoder in C: straight into place, many in one call.

    A call per frame keeps many threads waiting for the interpreter, which only one of them has at a time.
    """

    library = "C"
    note = "inflate.c, many frames per call"
    decodes_parts = False

    def __init__(self) -> None:
        deflate.inflate_library()

    def decode(self, stored: memoryview, chunk_bytes: int, start: int, out: np.ndarray) -> None:
        file = np.frombuffer(stored, np.uint8)
        self.decode_many(file, np.array([0]), np.array([len(file)]), out[None, :chunk_bytes], verify=True)

    def decode_many(
        self, file: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, out: np.ndarray, *, verify: bool
    ) -> None:
        damage = deflate.inflate(file, offsets, sizes, out, verify=verify)
        if damage is not None:
            raise DamagedError(damage.problem, damage.index)


class Blosc:
    """Blosc buffers, through the library inside hdf5plugin.

    Blosc compresses a chunk in blocks of about 128 KiB that can be decoded one by one: a frame out of a hundred costs
    two or three of them.
    """

    library = "blosc"
    note = ""
    decodes_parts = True
    _HEADER_BYTES = 16

    def __init__(self) -> None:
        plugins = Path(importlib.import_module("hdf5plugin").PLUGIN_PATH)
        library = next(iter(sorted(plugins.glob("libh5blosc.*"))), None)
        if library is None:
            raise ImportError("hdf5plugin has no Blosc library")
        try:
            self._get_item: Any = ctypes.CDLL(str(library)).blosc_getitem
        except (OSError, AttributeError) as error:
            raise ImportError(f"{library} cannot be called ({error})") from None
        self._get_item.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
        self._get_item.restype = ctypes.c_int

    def decode(self, stored: memoryview, chunk_bytes: int, start: int, out: np.ndarray) -> None:
        """Decompress the blocks that `out` needs."""
        # The library trusts what the header says of sizes, so they are checked first.
        if len(stored) < self._HEADER_BYTES:
            raise DamagedError(f"a Blosc buffer of {len(stored)} bytes")
        type_bytes, (size, _, stored_size) = stored[3], np.frombuffer(stored, "<u4", 3, 4).tolist()
        _check_size(size, chunk_bytes)
        _check_size(stored_size, len(stored))
        if type_bytes != 1:
            raise DamagedError(f"a Blosc buffer of items of {type_bytes} bytes")
        source = np.frombuffer(stored, np.uint8)
        if self._get_item(source.ctypes.data, start, len(out), out.ctypes.data) != len(out):
            raise DamagedError("Blosc cannot decompress it")


def _check_size(found: int, expected: int) -> None:
    if found != expected:
        raise DamagedError(f"{found} bytes instead of {expected}")


@cache
def fastest_inflater() -> Decoder:
    """Ours in C where it can be compiled, else Python's own zlib."""
    try:
        return NativeInflate()
    except NativeUnavailableError as error:
        return Inflate(f"not in C: {error}")


def decoder_of(filter_codes: list[int]) -> Decoder | str:
    """The decoder of a dataset with this filter pipeline; else the reason why there is none."""
    makers: dict[tuple[int, ...], Callable[[], Decoder]] = {
        (): Stored,
        (h5py.h5z.FILTER_DEFLATE,): fastest_inflater,
        (BLOSC_FILTER,): Blosc,
    }
    maker = makers.get(tuple(filter_codes))
    if maker is None:
        return "compressed with another filter than gzip or Blosc"
    try:
        return maker()
    except ImportError as error:
        return str(error)
