"""The call of `native/inflate.c`, which decodes many zlib streams at once while other threads run."""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from alewm.native import load_library

_SOURCE = Path(__file__).parent / "native" / "inflate.c"


@dataclass(frozen=True)
class Damage:
    """A stream that cannot be decoded."""

    index: int
    problem: str


@cache
def library() -> ctypes.CDLL:
    """The compiled decoder; raises NativeUnavailableError with the reason where there is none."""
    loaded = load_library(_SOURCE)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    frames: Any = loaded.inflate_frames
    frames.argtypes = [pointer, number, pointer, pointer, number, pointer, number, ctypes.c_int, pointer]
    loaded.inflate_problem.restype = ctypes.c_char_p
    return loaded


def inflate(
    file: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, out: np.ndarray, *, verify: bool = True
) -> Damage | None:
    """The first stream that does not decode to exactly its row of `out`, uint8 `[n, bytes]`; None if all do.

    Stream i is the `sizes[i]` bytes of `file` at `offsets[i]`. `verify` compares what was decoded with the stream's
    own checksum, which costs time. After a damaged stream the rest of `out` is not written.
    """
    for array in (file, out):
        if array.dtype != np.uint8 or not array.flags.c_contiguous:
            raise ValueError(f"Streams and frames must be contiguous bytes, got {array.dtype} {array.strides}.")
    if not out.flags.writeable or out.ndim != 2 or not len(out) == len(offsets) == len(sizes):
        raise ValueError(f"{len(offsets)} offsets, {len(sizes)} sizes and frames of {out.shape} do not fit.")
    starts, lengths = (np.ascontiguousarray(numbers, dtype=np.int64) for numbers in (offsets, sizes))
    index = ctypes.c_int64(-1)
    status = library().inflate_frames(
        file.ctypes.data,
        file.size,
        starts.ctypes.data,
        lengths.ctypes.data,
        len(out),
        out.ctypes.data,
        out.shape[1],
        verify,
        ctypes.addressof(index),
    )
    return Damage(index.value, library().inflate_problem(status).decode()) if status else None
