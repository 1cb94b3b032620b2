"""Frames back from their compressed bytes, without HDF5: its library runs one thread at a time.

Each decoder releases the interpreter while it works, so that threads decode side by side.
"""

import ctypes
import importlib
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import local
from typing import Any, Protocol, runtime_checkable

import h5py
import numpy as np

from alewm.data.codec import ZSTD_FILTER
from alewm.kernels import deflate
from alewm.kernels.compiled import NativeUnavailableError

BLOSC_FILTER = 32001
"""The number under which HDF5 knows Blosc."""

_WINDOW_BITS = 15


class DamagedError(ValueError):
    """Stored bytes that are no chunk of frames: number `index` of those that were to be decoded together."""

    def __init__(self, problem: str, index: int = 0) -> None:
        super().__init__(problem)
        self.index = index


@runtime_checkable
class Decoder(Protocol):
    """Decodes a stored chunk."""

    library: str
    """Who does the work."""

    note: str
    """What else there is to say of the choice; empty for nothing."""

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
        """Copy."""
        _check_size(len(stored), chunk_bytes)
        out[:] = np.frombuffer(stored, np.uint8, len(out), start)


class Inflate:
    """zlib streams, by Python's own zlib."""

    library = "zlib"
    decodes_parts = False

    def __init__(self, note: str = "") -> None:
        self.note = note

    def decode(self, stored: memoryview, chunk_bytes: int, start: int, out: np.ndarray) -> None:
        """Inflate the whole chunk."""
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
        """Inflate the whole chunk."""
        file = np.frombuffer(stored, np.uint8)
        self.decode_many(file, np.array([0]), np.array([len(file)]), out[None, :chunk_bytes], verify=True)

    def decode_many(
        self, file: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, out: np.ndarray, *, verify: bool
    ) -> None:
        """Inflate whole chunks."""
        damage = deflate.inflate(file, offsets, sizes, out, verify=verify)
        if damage is not None:
            raise DamagedError(damage.problem, damage.index)


class Zstd:
    """Zstandard frames."""

    library = "zstandard"
    note = ""
    decodes_parts = False

    def __init__(self) -> None:
        self._module = importlib.import_module("zstandard")
        self._threads = local()

    def decode(self, stored: memoryview, chunk_bytes: int, start: int, out: np.ndarray) -> None:
        """Decompress the whole chunk."""
        if not hasattr(self._threads, "decompressor"):  # one each: they are not safe to share
            self._threads.decompressor = self._module.ZstdDecompressor()
        try:
            # Straight into place: making and freeing a buffer of this size takes four times as long as decoding.
            with self._threads.decompressor.stream_reader(stored) as reader:
                _check_size(reader.readinto(out), chunk_bytes)
                if reader.read(1):
                    raise DamagedError(f"more than {chunk_bytes} bytes")
        except self._module.ZstdError as error:
            raise DamagedError(str(error)) from None


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


def all_inflaters() -> list[Decoder]:
    """Every decoder of zlib streams that works here, fastest first; the last is Python's own."""
    fastest = fastest_inflater()
    return [fastest] if isinstance(fastest, Inflate) else [fastest, Inflate()]


def decoder_of(filter_codes: list[int]) -> Decoder | str:
    """The decoder of a dataset with this filter pipeline; else the reason why there is none."""
    makers: dict[tuple[int, ...], Callable[[], Decoder]] = {
        (): Stored,
        (h5py.h5z.FILTER_DEFLATE,): fastest_inflater,
        (ZSTD_FILTER,): Zstd,
        (BLOSC_FILTER,): Blosc,
    }
    maker = makers.get(tuple(filter_codes))
    if maker is None:
        return "compressed with another filter than gzip, zstd or Blosc"
    try:
        return maker()
    except ImportError as error:
        return str(error)
