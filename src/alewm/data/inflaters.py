"""Decoders of deflated frames: ours in C, and the libraries that are installed. All return the same bytes."""

import ctypes
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from alewm.native import NativeUnavailableError, load_library

_MODULES = ("zlib_ng.zlib_ng", "isal.isal_zlib", "zlib")
"""Modules with zlib's interface, fastest first; all but Python's own are optional."""

_SOURCE = Path(__file__).parent / "native" / "inflate.c"
_WINDOW_BITS = 15


class DamagedStreamError(ValueError):
    """Stream number `index` of a call cannot be decoded, or not to the size that was expected."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"stream {index}: {problem}")
        self.index = index
        self.problem = problem


@runtime_checkable
class Inflater(Protocol):
    """Decodes zlib streams whose size is known; several threads may do so at once."""

    @property
    def library(self) -> str:
        """The name of what does it."""

    def inflate(
        self, file: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, out: np.ndarray, *, verify: bool = True
    ) -> None:
        """Write stream i, the `sizes[i]` bytes of `file` at `offsets[i]`, to row i of `out`, uint8 `[n, bytes]`.

        The first one that does not decode to exactly that many bytes raises DamagedStreamError. `verify` compares the
        decoded bytes with the stream's checksum; a decoder may do so anyway.
        """


@dataclass(frozen=True)
class ModuleInflater:
    """A module with zlib's interface: a call and a new bytes object per stream."""

    library: str
    decompress: Callable[[np.ndarray, int, int], bytes]
    errors: tuple[type[Exception], ...]
    """What `decompress` raises on damage."""

    def inflate(
        self, file: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, out: np.ndarray, *, verify: bool = True
    ) -> None:
        """Write stream i to row i of `out`."""
        del verify  # these always do
        expected = out.shape[1]
        for i, (start, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
            try:
                # The third argument is the first size of the result: given exactly, nothing is ever copied to grow it.
                data = self.decompress(file[start : start + size], _WINDOW_BITS, expected)
            except self.errors as error:
                raise DamagedStreamError(i, str(error)) from None
            if len(data) != expected:
                raise DamagedStreamError(i, f"it decodes to {len(data)} bytes instead of {expected}")
            out[i] = np.frombuffer(data, np.uint8)


class NativeInflater:
    """`native/inflate.c`: one call for all streams, straight into `out`, while other threads run.

    Raises NativeUnavailableError where it cannot be compiled.
    """

    library = "C"

    def __init__(self) -> None:
        library = load_library(_SOURCE)
        self._inflate = library.inflate_frames
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._inflate.argtypes = [pointer, number, pointer, pointer, number, pointer, number, ctypes.c_int, pointer]
        self._problem = library.inflate_problem
        self._problem.restype = ctypes.c_char_p

    def inflate(
        self, file: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, out: np.ndarray, *, verify: bool = True
    ) -> None:
        """Write stream i to row i of `out`."""
        for array in (file, out):
            if array.dtype != np.uint8 or not array.flags.c_contiguous:
                raise ValueError(f"Streams and frames must be contiguous bytes, got {array.dtype} {array.strides}.")
        if not out.flags.writeable or out.ndim != 2 or not len(out) == len(offsets) == len(sizes):
            raise ValueError(f"{len(offsets)} offsets, {len(sizes)} sizes and frames of {out.shape} do not fit.")
        starts, lengths = (np.ascontiguousarray(numbers, dtype=np.int64) for numbers in (offsets, sizes))
        first_bad = ctypes.c_int64(-1)
        status = self._inflate(
            file.ctypes.data,
            file.size,
            starts.ctypes.data,
            lengths.ctypes.data,
            len(out),
            out.ctypes.data,
            out.shape[1],
            verify,
            ctypes.addressof(first_bad),
        )
        if status:
            raise DamagedStreamError(first_bad.value, self._problem(status).decode())


@cache
def fastest_inflater() -> tuple[Inflater, str]:
    """The fastest decoder of this machine, and in words which and why."""
    try:
        return NativeInflater(), "inflated in C, many per call"
    except NativeUnavailableError as error:
        inflater = _installed_modules()[0]
        return inflater, f"inflated by {inflater.library} (not in C: {error})"


def all_inflaters() -> list[Inflater]:
    """Every decoder of this machine, fastest first; the last is Python's own zlib."""
    fastest = fastest_inflater()[0]
    return [fastest, *(inflater for inflater in _installed_modules() if inflater.library != fastest.library)]


def _installed_modules() -> list[ModuleInflater]:
    found = []
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        found.append(ModuleInflater(name.partition(".")[0], module.decompress, (module.error, EOFError)))
    return found
