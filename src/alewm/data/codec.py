"""Lossless frame compression, each frame on its own: what the writer does (reading is `alewm.data.decoders`).

`gzip` is the filter every HDF5 build has. Two encoders make its streams. Ours, in C (`alewm.kernels.deflate`), is for
drawn pictures: on those of Two-Room and Push-T it is about ten times as fast as zlib at level 6, at about its size.
zlib, always Python's own, is for pictures with texture, and for machines without a C compiler. What is installed beside
them never changes a file. `zstd` makes Two-Room files a quarter smaller but takes longer to write; it needs the
packages of the extra `zstd`, and its bytes are those of one version of that library, which a continued file must match.
One frame per chunk: runs of frames compress better, but a window takes four frames, five rows apart, and would decode
the runs they lie in.
"""

import importlib
import zlib
from dataclasses import dataclass
from functools import cache
from threading import local
from typing import Any, Literal, get_args

import numpy as np

from alewm.errors import InputError, unknown_name
from alewm.kernels import deflate
from alewm.kernels.compiled import NativeUnavailableError

Filter = Literal["gzip", "zstd"]
Encoder = Literal["alewm", "zlib"]

ZSTD_FILTER = 32015
"""The number under which HDF5 knows Zstandard."""

ZSTD_INSTALL = "pip install 'alewm[zstd]'"

DEFAULT_LEVELS = {"gzip": 6, "zstd": 15}
"""gzip: Two-Room files within a tenth of level 9's size. zstd: level 10 gave 3,810 bytes a row, 15 gives 3,457."""

_HIGHEST_LEVELS = {"gzip": 9, "zstd": 19}

# A frame is a calm background and a few busy rows. Short Huffman blocks (a small symbol buffer) give each its own code
# and save 3 % at no cost in time; the bytes stay plain zlib, whatever the reader.
_MEMORY_LEVEL = 5
_WINDOW_BITS = 15


@dataclass(frozen=True)
class Compression:
    """How the frames of a file are compressed."""

    filter: str = "gzip"
    """gzip or zstd."""

    level: int = 0
    """From 1 (fast) to 9 for zlib and 19 for zstd (small); 0 for the default one."""

    encoder: str = "alewm"
    """Who makes gzip streams. alewm: ours, which has no levels, or zlib if one is asked for or C cannot be compiled."""

    def __post_init__(self) -> None:
        if self.filter not in get_args(Filter):
            raise unknown_name("filter", self.filter, get_args(Filter))
        if self.encoder not in get_args(Encoder):
            raise unknown_name("encoder", self.encoder, get_args(Encoder))
        highest = _HIGHEST_LEVELS[self.filter]
        if not 0 <= self.level <= highest:
            raise InputError(f"The {self.filter} level is 1 (fast) to {highest} (small), got {self.level}.")

    @property
    def used_level(self) -> int:
        """The level, the default one if none was given."""
        return self.level or DEFAULT_LEVELS[self.filter]

    @property
    def uses_own_encoder(self) -> bool:
        """Whether streams are made by our encoder, here and now."""
        return self.filter == "gzip" and self.encoder == "alewm" and self.level == 0 and why_not_in_c() is None

    @property
    def encoder_in_words(self) -> str:
        """Who makes the streams, as stored in files."""
        if self.uses_own_encoder:
            return f"alewm {deflate.VERSION}"
        return f"{'zlib' if self.filter == 'gzip' else 'zstd'} level {self.used_level}"

    def compress_frames(self, frames: np.ndarray) -> tuple[bytes, np.ndarray]:
        """The streams of `frames`, uint8 `[n, Y, X, 3]`, one after the other, and the size of each, int64 `[n]`."""
        if self.uses_own_encoder:
            return deflate.deflate(frames)
        streams = [self.compress(np.ascontiguousarray(frame).data) for frame in frames]
        return b"".join(streams), np.array([len(stream) for stream in streams], dtype=np.int64)

    def compress(self, frame: bytes | memoryview) -> bytes:
        """`frame` as the filter's stream, made by the filter's own library."""
        if self.filter == "gzip":
            compressor = zlib.compressobj(self.used_level, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL)
            return compressor.compress(frame) + compressor.flush()
        stream: bytes = _zstd_compressor(self.used_level).compress(frame)
        return stream

    def check_installed(self) -> None:
        """Refuse a filter whose packages are missing, with the line that installs them."""
        if self.filter == "zstd":
            for package in ("zstandard", "hdf5plugin"):
                try:
                    importlib.import_module(package)  # importing hdf5plugin registers the filter with HDF5
                except ImportError:
                    raise InputError(
                        f"The filter 'zstd' needs the package {package!r}, which is not installed. "
                        f"Install it: {ZSTD_INSTALL}"
                    ) from None

    def dataset_options(self) -> dict[str, Any]:
        """Arguments for h5py's `create_dataset`."""
        if self.filter == "gzip":
            return {"compression": "gzip", "compression_opts": self.used_level}
        return {"compression": ZSTD_FILTER, "compression_opts": (self.used_level,)}

    def identity(self) -> dict[str, Any]:
        """All that decides the bytes."""
        if self.uses_own_encoder:
            return {"encoder": self.encoder_in_words}
        if self.filter == "gzip":
            return {"level": self.used_level}
        return {"filter": self.filter, "level": self.used_level, "zstd": list(_zstandard().ZSTD_VERSION)}


@cache
def why_not_in_c() -> str | None:
    """Why our own encoder does not work here; None if it does."""
    try:
        deflate.deflate_library()
    except NativeUnavailableError as error:
        return str(error)
    return None


_threads = local()


def _zstd_compressor(level: int) -> Any:
    """This thread's own: compressors are not safe to share, and making one for each frame would cost more than it."""
    known: dict[int, Any] = _threads.__dict__.setdefault("compressors", {})
    if level not in known:
        known[level] = _zstandard().ZstdCompressor(level=level)
    return known[level]


def _zstandard() -> Any:
    return importlib.import_module("zstandard")
