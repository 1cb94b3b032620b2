"""Compress and decompress many frames in C (`deflate_c/`), while other threads run."""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from alewm.kernels.compiled import load_library

VERSION = 1
"""Version of the encoder's output; an unfinished file is not continued by another version."""

_DEFLATE = Path(__file__).parent / "deflate_c" / "deflate.c"
_LARGEST_FRAME = 2**31 - 1


@cache
def deflate_library() -> ctypes.CDLL:
    """The compiled encoder; raises NativeUnavailableError with the reason where there is none."""
    loaded = load_library(_DEFLATE)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    frames: Any = loaded.deflate_frames
    frames.argtypes = [pointer, number, number, number, pointer, pointer]
    most: Any = loaded.deflated_bytes_at_most
    most.argtypes, most.restype = [number], number
    return loaded


def deflate(frames: np.ndarray) -> tuple[bytes, np.ndarray]:
    """The zlib streams of `frames`, uint8 `[n, rows, bytes of a row ...]`, one after the other, and the size of each.

    The bytes of a stream depend on its frame alone.
    """
    if frames.dtype != np.uint8 or frames.ndim < 3:
        raise ValueError(f"Frames are bytes [n, rows, ...], got {frames.dtype} {frames.shape}.")
    frames = np.ascontiguousarray(frames)
    row_bytes = int(np.prod(frames.shape[2:]))
    frame_bytes = frames.shape[1] * row_bytes
    if frame_bytes > _LARGEST_FRAME:
        raise ValueError(f"A frame of {frame_bytes} bytes is too large; the most is {_LARGEST_FRAME}.")
    # Room for the worst case: what is not written is not touched, so it takes no memory.
    out = np.empty(len(frames) * deflate_library().deflated_bytes_at_most(frame_bytes), dtype=np.uint8)
    sizes = np.empty(len(frames), dtype=np.int64)
    status = deflate_library().deflate_frames(
        frames.ctypes.data, len(frames), frame_bytes, row_bytes, out.ctypes.data, sizes.ctypes.data
    )
    if status != 0:
        raise MemoryError("No memory to compress frames in.")
    return out[: sizes.sum()].tobytes(), sizes


_INFLATE = Path(__file__).parent / "deflate_c" / "inflate.c"


@dataclass(frozen=True)
class Damage:
    """A stream that cannot be decoded."""

    index: int
    problem: str


@cache
def inflate_library() -> ctypes.CDLL:
    """The compiled decoder; raises NativeUnavailableError with the reason where there is none."""
    loaded = load_library(_INFLATE)
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
    status = inflate_library().inflate_frames(
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
    return Damage(index.value, inflate_library().inflate_problem(status).decode()) if status else None
