"""The call of `native/deflate.c`, which compresses many frames at once while other threads run."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from alewm.native import load_library

VERSION = 1
"""Raised whenever the same frames become other bytes: an unfinished file is not continued by another version."""

_SOURCE = Path(__file__).parent / "native" / "deflate.c"
_LARGEST_FRAME = 2**31 - 1


@cache
def library() -> ctypes.CDLL:
    """The compiled encoder; raises NativeUnavailableError with the reason where there is none."""
    loaded = load_library(_SOURCE)
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
    out = np.empty(len(frames) * library().deflated_bytes_at_most(frame_bytes), dtype=np.uint8)
    sizes = np.empty(len(frames), dtype=np.int64)
    status = library().deflate_frames(
        frames.ctypes.data, len(frames), frame_bytes, row_bytes, out.ctypes.data, sizes.ctypes.data
    )
    if status != 0:
        raise MemoryError("No memory to compress frames in.")
    return out[: sizes.sum()].tobytes(), sizes
